"""Which parents to take, for all trees of a topic together: the leader of a cluster decides.

Coordinators tell it what the sites that they asked have offered. A tree that has not asked now
keeps its parent, and the others choose with regard to that one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping

from unisono.ens.scribe.diversity import Offer, choose
from unisono.ens.scribe.messages import Contact, Message, Offered, Offers, Probe, Take

_MEASURE_BEATS = 8, 64  # between questions to sites that do not know the way: first, and at most
_TAKEN = 1 << 12  # topics whose parents are remembered


class Survey:
    """Who was asked to take us as a child, and what they said."""

    __slots__ = ("asked_us", "contacts", "offers", "told", "wait_us")

    def __init__(self, contacts: Iterable[Contact], wait_us: int) -> None:
        self.contacts = tuple(contacts)
        self.wait_us = wait_us  # until they are asked again, if some must first measure the way
        self.asked_us = 0
        self.offers: list[Offered] = []
        self.told = False  # the leader knows


class Surveys:
    """At a coordinator: those that are open, by topic."""

    def __init__(
        self,
        slot: int,
        beat_us: int,
        me: Callable[[], Contact],
        tell: Callable[[Contact, Message], None],
        tell_leader: Callable[[Offers], None],
    ) -> None:
        self._slot = slot
        self._beat_us = beat_us
        self._me = me
        self._tell = tell
        self._tell_leader = tell_leader
        self._open: dict[str, Survey] = {}

    def begin(self, topic: str, contacts: Iterable[Contact], now: int) -> None:
        survey = self._open[topic] = Survey(contacts, _MEASURE_BEATS[0] * self._beat_us)
        self._ask(topic, survey, now)

    def hear(self, offered: Offered) -> None:
        survey = self._open.get(offered.topic)
        if survey is not None:
            survey.offers.append(offered)

    def _ask(self, topic: str, survey: Survey, now: int) -> None:
        survey.asked_us, survey.offers, survey.told = now, [], False
        probe = Probe(self._slot, topic, self._me())
        for contact in survey.contacts:
            self._tell(contact, probe)

    def tick(self, now: int) -> None:
        """When those who were asked had a beat to answer, the leader hears what they said. If some
        did not know the way, all are asked again, later and later."""
        for topic, survey in list(self._open.items()):
            since_us = now - survey.asked_us
            if not survey.told and since_us >= self._beat_us:
                survey.told = True
                if survey.offers:
                    self._tell_leader(Offers(self._slot, topic, tuple(survey.offers)))
                known = all(offered.measured for offered in survey.offers)
                if known or survey.wait_us > _MEASURE_BEATS[1] * self._beat_us:
                    del self._open[topic]
            elif survey.told and since_us >= survey.wait_us:
                survey.wait_us *= 2
                self._ask(topic, survey, now)


class Decisions:
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
