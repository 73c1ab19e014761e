"""Does another member of the cluster reach more of the other clusters than its coordinator does?

Only coordinators speak with other clusters, and some cuts leave a way to these from some members
alone. So a coordinator that hears a site no more, or hears of one that does not answer, asks
members to knock at it, and at some that are heard here, and knocks itself. Who gets more answers
than the coordinator takes its place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from unisono.ens.scribe.ids import distance, site_id
from unisono.ens.scribe.messages import Contact, Reach
from unisono.ens.scribe.options import Shape
from unisono.ens.scribe.pastry import Ring

MEMBERS = 8  # that are asked at a time
_SITES = 8  # that they knock at, of those heard and of those lost
SITES = 2 * _SITES
_LOST = 64  # sites that are remembered
_TRIES = 16  # then a site is taken for gone
_LONGER = 4  # doublings of the time between rounds that bring nothing


class Scouts:
    """Of one slot, at its coordinator."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._lost: OrderedDict[str, tuple[Contact, int]] = OrderedDict()  # and times asked for
        self._answers: dict[str, set[str]] = {}  # name of a member, "" for us -> sites
        self._since_us: int | None = None
        self._next_us = 0
        self._rounds = 0  # since a site was lost

    def lost(self, contact: Contact) -> None:
        """It has been silent for too long."""
        self._rounds = 0
        self._remember(contact)

    def unreached(self, contact: Contact) -> None:
        """Somebody else hears it, and it does not answer here."""
        if contact.site not in self._lost:
            self.lost(contact)

    def forget(self, site: str) -> None:
        """It is no more."""
        self._lost.pop(site, None)

    def _remember(self, contact: Contact) -> None:
        self._lost[contact.site] = (contact, 0)
        if len(self._lost) > _LOST:
            self._lost.popitem(last=False)

    def apart(self, ring: Ring, key: int) -> bool:
        """Whether there may be a site nearer to this key that is not heard, for now."""
        if not ring.known and (self._lost or not ring.settled):
            return True
        here = distance(ring.id, key)
        return any(distance(site_id(site, ring.slot), key) < here for site in self._lost)

    def where(self, ring: Ring, others: Iterable[Contact], now: int) -> tuple[Contact, ...]:
        """At whom members are to knock now. `others`: whom this process has heard of."""
        if now < self._next_us and self._rounds:
            return ()
        for site in [site for site in self._lost if site in ring.known]:
            del self._lost[site]
        if not ring.known:
            for contact in others:
                if contact.site != ring.site and contact.site not in self._lost:
                    self._remember(contact)
        missing = [contact for contact, _ in self._lost.values()][:_SITES]
        if not missing:
            return ()
        for contact in missing:
            _, tries = self._lost.pop(contact.site)
            if tries + 1 < _TRIES:
                self._lost[contact.site] = (contact, tries + 1)  # the last in the row
        heard = ring.leaves[:_SITES]
        self._answers = {"": {contact.site for contact in heard}}
        self._since_us = now
        wait_us = 4 * self._shape.silence * self._shape.beat_us
        self._next_us = now + (wait_us << min(self._rounds, _LONGER))
        self._rounds += 1
        return (*heard, *missing)

    def reach(self, reach: Reach) -> None:
        """A member was answered, or we were."""
        if self._since_us is not None:
            self._answers.setdefault(reach.name, set()).add(reach.site)

    def best(self, now: int) -> str | None:
        """The member to take our place, when they had time, if there is one."""
        if self._since_us is None or now - self._since_us < 2 * self._shape.beat_us:
            return None
        self._since_us = None
        counts = {name: len(sites) for name, sites in self._answers.items()}
        name = max(counts, key=lambda name: (counts[name], name))
        return name if counts[name] > counts[""] else None
