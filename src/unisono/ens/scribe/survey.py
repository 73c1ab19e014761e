"""Which parents to take, for all trees of a topic together: the leader of a cluster decides.

Coordinators tell it what the sites that they asked have offered. A tree that has not asked now
keeps its parent, and the others choose with regard to that one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from unisono.ens.scribe.diversity import Offer, choose
from unisono.ens.scribe.messages import Contact, Offered, Offers, Take

_TAKEN = 1 << 12  # topics whose parents are remembered


class Survey:
    """At a coordinator: who was asked to take us as a child, and what they said."""

    __slots__ = ("asked_us", "contacts", "offers", "told", "wait_us")

    def __init__(self, contacts: Iterable[Contact], wait_us: int) -> None:
        self.contacts = tuple(contacts)
        self.wait_us = wait_us  # until they are asked again, if some must first measure the way
        self.asked_us = 0
        self.offers: list[Offered] = []
        self.told = False  # the leader knows


class Surveys:
    """At the leader: what was offered, until it is decided, and what was taken."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, dict[int, tuple[Offered, ...]]]] = {}  # topic -> since
        self._taken: OrderedDict[str, dict[int, Offered]] = OrderedDict()

    def hear(self, offers: Offers, now: int) -> None:
        _, slots = self._open.setdefault(offers.topic, (now, {}))
        slots[offers.slot] = offers.offers

    def decide(self, trees: int, now: int, patience_us: int) -> Iterator[Take]:
        """For topics of which all trees have asked, or some and the rest had time."""
        for topic, (since, slots) in list(self._open.items()):
            if len(slots) < trees and now - since < patience_us:
                continue
            del self._open[topic]
            yield from self._choose(topic, slots)

    def _choose(self, topic: str, slots: Mapping[int, tuple[Offered, ...]]) -> Iterator[Take]:
        taken = self._taken.setdefault(topic, {})
        self._taken.move_to_end(topic)
        if len(self._taken) > _TAKEN:
            self._taken.popitem(last=False)
        every = {**{slot: (offered,) for slot, offered in taken.items()}, **slots}
        numbers = sorted(every)
        chosen = choose([[_offer(offered) for offered in every[slot]] for slot in numbers])
        for slot, offer in zip(numbers, chosen, strict=True):
            if slot in slots:
                parent = next(o for o in slots[slot] if o.parent.site == offer.site)
                taken[slot] = parent
                yield Take(slot, topic, parent.parent)


def _offer(offered: Offered) -> Offer:
    return Offer(offered.parent.site, frozenset(offered.way), offered.added, offered.delay_us)
