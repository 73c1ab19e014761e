"""A ring of sites and the way around in it: Pastry's leaf set and routing table, for one slot.

A site knows its nearest `leaves` on either side, and for every length of a common prefix and every
next digit some site that has it, the one with the shortest way. A message for a key goes to a site
that shares one digit more with the key, and in the end to the numerically nearest among the
leaves: O(log N) hops. What others say of sites is only believed once these have answered.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from unisono.ens.scribe.ids import RING, common_digits, digit, distance, site_id
from unisono.ens.scribe.messages import Contact

_DOUBTFUL = 256  # sites heard of that have not answered yet: further ones are not asked
_REFUSED = 4096  # sites remembered as of no use: then all are forgotten, and asked again
_TRIES = 3
_DOUBTS = 3
_FAR = 1 << 62  # not measured yet


class Seen:
    """A site that has spoken, and how to reach it.

    A later view replaces an earlier one. Where two had claimed the site and the younger one has
    given in, the earlier view goes on to speak and the later one does not: then that is the one.
    """

    __slots__ = ("_doubts", "contact")

    def __init__(self, contact: Contact) -> None:
        self.contact = contact
        self._doubts = 0

    def hear(self, contact: Contact) -> bool:
        """It speaks. Whether it is to be reached otherwise than before."""
        if contact.version < self.contact.version:
            self._doubts += 1
            if self._doubts < _DOUBTS:
                return False
        changed = contact != self.contact  # two views of one number: a leader died announcing it
        self.contact = contact
        self._doubts = 0
        return changed


class Known(Seen):
    """A site of the ring."""

    __slots__ = ("id", "rtt_us", "unanswered")

    def __init__(self, contact: Contact, rtt_us: int) -> None:
        super().__init__(contact)
        self.id = site_id(contact.site, contact.slot)
        self.rtt_us = rtt_us
        self.unanswered = 0  # times it was asked, since it last spoke


class Ring:
    """What one site knows of the others."""

    def __init__(self, site: str, slot: int, leaves: int) -> None:
        self.site = site
        self.slot = slot
        self.id = site_id(site, slot)
        self._leaves = leaves
        self.known: dict[str, Known] = {}
        self._doubtful: dict[str, tuple[Contact, int]] = {}
        self._refused: dict[str, int] = {}  # site -> version: it answered and has no place here
        self._cells: dict[tuple[int, int], Known] = {}
        self._left: list[Known] = []  # nearest first
        self._right: list[Known] = []
        self.turns = 0  # how often routes may have become others
        self._turn = 0

    # Who is where.

    @property
    def leaves(self) -> list[Contact]:
        """The leaf set."""
        return list({leaf.id: leaf.contact for leaf in (*self._left, *self._right)}.values())

    @property
    def neighbours(self) -> list[Contact]:
        """The next on either side."""
        beside = [*self._left[:1], *self._right[:1]]
        return list({leaf.id: leaf.contact for leaf in beside}.values())

    def next_hop(self, key: int) -> Contact | None:
        """Where a message for this key goes from here; None: it has arrived."""
        here = (distance(self.id, key), self.id)
        if self._among_leaves(key):
            near = min(
                ((distance(leaf.id, key), leaf.id, leaf) for leaf in (*self._left, *self._right)),
                default=None,
                key=lambda found: found[:2],
            )
            return near[2].contact if near is not None and near[:2] < here else None
        row = common_digits(self.id, key)
        cell = self._cells.get((row, digit(key, row)))
        if cell is not None:
            return cell.contact
        rest = (
            (distance(known.id, key), known.id, known)
            for known in self.known.values()
            if common_digits(known.id, key) >= row
        )
        best = min(rest, default=None, key=lambda found: found[:2])
        return best[2].contact if best is not None and best[:2] < here else None

    def _among_leaves(self, key: int) -> bool:
        if len(self._left) < self._leaves or len(self._right) < self._leaves:
            return True  # they are everyone
        begin, end = self._left[-1].id, self._right[-1].id
        if (self.id - begin) % RING + (end - self.id) % RING >= RING:
            return True  # they go around
        return (key - begin) % RING <= (end - begin) % RING

    def row_for(self, site: str) -> list[Contact]:
        """The leaves, and what the table holds for the prefix that is shared with this site."""
        row = common_digits(self.id, site_id(site, self.slot))
        cells = [known.contact for (at, _), known in self._cells.items() if at <= row]
        return [c for c in {c.site: c for c in (*self.leaves, *cells)}.values() if c.site != site]

    @property
    def settled(self) -> bool:
        """Whether all that this site has heard of have answered, or are gone."""
        return not self._doubtful

    # What is heard.

    def hear_of(self, contacts: Iterable[Contact]) -> None:
        """Somebody says that these exist; those that would be of use are asked."""
        for contact in contacts:
            if contact.site == self.site or contact.slot != self.slot:
                continue
            known = self.known.get(contact.site)
            if known is not None:
                if contact.version <= known.contact.version:
                    continue
            elif self._refused.get(contact.site, -1) >= contact.version:
                continue
            waiting = self._doubtful.get(contact.site)
            if waiting is not None and waiting[0].version >= contact.version:
                continue
            if len(self._doubtful) < _DOUBTFUL or waiting is not None:
                self._doubtful[contact.site] = (contact, 0)

    def ask(self, again: bool = False, most: int = 16) -> list[Contact]:
        """Who is to be pinged now, as somebody said that they exist: those that have not been yet,
        and `again` those that have not answered."""
        asked = [doubt for doubt in self._doubtful.values() if again or not doubt[1]][:most]
        for contact, tries in asked:
            del self._doubtful[contact.site]
            self._doubtful[contact.site] = (contact, tries + 1)  # the last in the row
        return [contact for contact, _ in asked]

    def give_up(self) -> list[Contact]:
        """Those that were asked often enough, and did not answer: they are doubtful no more."""
        silent = [contact for contact, tries in self._doubtful.values() if tries >= _TRIES]
        for contact in silent:
            del self._doubtful[contact.site]
        return silent

    @property
    def unanswered(self) -> list[Contact]:
        """Those that have not answered the last time."""
        return [known.contact for known in self.known.values() if known.unanswered]

    def look_after(self) -> Contact | None:
        """One of those that are not neighbours, in turn: it is to be asked for news."""
        beside = {contact.site for contact in self.neighbours}
        others = sorted(site for site in self.known if site not in beside)
        if not others:
            return None
        self._turn += 1
        return self.known[others[self._turn % len(others)]].contact

    def hear(self, contact: Contact, rtt_us: int | None = None) -> bool:
        """This site has spoken. Whether it is new, or at new addresses."""
        if contact.site == self.site or contact.slot != self.slot:
            return False
        self._doubtful.pop(contact.site, None)
        known = self.known.get(contact.site)
        if known is None:
            self.known[contact.site] = Known(contact, _FAR if rtt_us is None else rtt_us)
            self._sort()
            if contact.site in self.known:
                return True
            self._refused[contact.site] = contact.version
            if len(self._refused) > _REFUSED:
                self._refused.clear()
            return False
        known.unanswered = 0
        changed = known.hear(contact)
        if rtt_us is not None and rtt_us < known.rtt_us:
            known.rtt_us = rtt_us
            self._sort()
        return changed

    def forget(self, site: str) -> bool:
        """It is gone."""
        self._doubtful.pop(site, None)
        if self.known.pop(site, None) is None:
            return False
        self._refused.clear()  # there is room again
        self._sort()
        return True

    def _sort(self) -> None:
        """Leaves and table, out of all that is known; what is in neither is let go."""
        self.turns += 1
        order = sorted(self.known.values(), key=lambda known: known.id)
        place = bisect_left([known.id for known in order], self.id)
        around = order[place:] + order[:place]  # clockwise from here
        self._right = around[: self._leaves]
        self._left = around[::-1][: self._leaves]
        cells: dict[tuple[int, int], Known] = {}
        for known in order:
            row = common_digits(self.id, known.id)
            at = (row, digit(known.id, row))
            held = cells.get(at)
            if held is None or (known.rtt_us, known.id) < (held.rtt_us, held.id):
                cells[at] = known
        self._cells = cells
        kept = {id(known) for known in (*self._left, *self._right, *cells.values())}
        self.known = {site: known for site, known in self.known.items() if id(known) in kept}
