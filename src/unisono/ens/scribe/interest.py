"""Who wants what: the subscriptions of a process, and at a coordinator those of its members.

A process tells the coordinators what has changed since the version before, or all of it. Each of
them answers once events of all of it arrive over its slot.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from unisono.ens.scribe.messages import Interest, Item, Ready
from unisono.ens.scribe.recent import Recent
from unisono.ens.scribe.site import Site

_NONE: frozenset[str] = frozenset()


class Subscriptions:
    """Those of a process. Each change makes a version."""

    def __init__(self, name: str, recent: Recent) -> None:
        self.topics: set[str] = set()
        self.version = 0
        self._name = name
        self._recent = recent
        # Topics whose subscription is not effective yet, with their versions, which only grow.
        self._new: OrderedDict[str, int] = OrderedDict()
        self._before: dict[str, dict[str, int]] = {}  # by source, the last event before
        self._ready: dict[int, int] = {}  # slot -> version
        self._tickets: deque[tuple[int, str, int]] = deque()  # version, name, since

    def add(self, topic: str, ticket: str, now: int) -> Interest | None:
        """What changes, if something does."""
        change = None
        if topic not in self.topics:
            self.topics.add(topic)
            self.version += 1
            self._new[topic] = self.version
            change = Interest(self._name, self.version, (topic,), since=self.version - 1)
        self._tickets.append((self.version, ticket, now))
        return change

    def remove(self, topic: str) -> Interest | None:
        """What changes, if something does."""
        if topic not in self.topics:
            return None
        self.topics.discard(topic)
        self._new.pop(topic, None)
        self._before.pop(topic, None)
        self.version += 1
        return Interest(self._name, self.version, (), (topic,), since=self.version - 1)

    @property
    def all(self) -> Interest:
        return Interest(self._name, self.version, tuple(sorted(self.topics)))

    def wants(self, item: Item) -> bool:
        """Whether the application is to get it. Of a source that is heard before the subscription
        is effective, nothing earlier: others may still have it, and it may be asked for."""
        if item.topic not in self.topics:
            return False
        if item.topic in self._new:
            begun = self._before.setdefault(item.topic, {})
            begun.setdefault(item.source, item.number - 1)
        before = self._before.get(item.topic)
        return before is None or item.number > before.get(item.source, 0)

    def ready(self, ready: Ready, now: int) -> None:
        """Events arrive over this slot."""
        for topic, source, number in ready.heads:
            if topic not in self.topics:
                continue
            asked = self._new.get(topic)
            if asked is None or source in self._before.get(topic, ()):
                self._recent.told(topic, source, number, now)
            elif asked <= ready.version:
                self._recent.begin(((topic, source, number),))
                self._before.setdefault(topic, {})[source] = number
        self._ready[ready.slot] = max(self._ready.get(ready.slot, 0), ready.version)

    @property
    def waiting(self) -> bool:
        return bool(self._tickets)

    def effective(self, trees: int, before_us: int) -> list[str]:
        """The tickets of subscriptions for which all trees bring events; of those made before that
        time, for which one does."""
        versions = [self._ready.get(slot, -1) for slot in range(trees)]
        done = []
        while self._tickets:
            version, ticket, since = self._tickets[0]
            if (max(versions) if since < before_us else min(versions)) < version:
                break
            done.append(ticket)
            self._tickets.popleft()
            while self._new and next(iter(self._new.values())) <= version:
                self._new.popitem(last=False)
        return done


class Wishes:
    """At a coordinator: what the members subscribe to, and whether it arrives."""

    def __init__(
        self, sites: Mapping[int, Site], say_ready: Callable[[str, int, int], None]
    ) -> None:
        self.wanting: dict[str, dict[str, None]] = {}  # topic -> names
        self._sites = sites
        self._say_ready = say_ready
        self._known: dict[str, tuple[int, set[str]]] = {}  # name -> version, topics
        self._lacking: set[str] = set()  # who was asked for all of it
        self._unready: dict[tuple[str, int], tuple[int, set[str]]] = {}  # name, slot

    def version(self, name: str) -> int:
        """The last that is known, -1: none."""
        return self._known[name][0] if name in self._known else -1

    @property
    def wanted(self) -> AbstractSet[str]:
        return self.wanting.keys()

    def topics(self, name: str) -> AbstractSet[str]:
        return self._known[name][1] if name in self._known else _NONE

    def hear(self, interest: Interest, now: int) -> bool:
        """False if all of it is to be asked for: it is a change of what is not known here."""
        name, version = interest.name, self.version(interest.name)
        if interest.version < version:
            return True
        known = self._known.get(name, (version, set()))[1]
        topics = set(interest.topics)
        if interest.since is None:
            self._lacking.discard(name)
            gone = known - topics
        elif interest.since == version:
            gone = known.intersection(interest.gone)
        elif interest.version == version or name in self._lacking:
            return True  # a sign of life tells if what was asked for got lost
        else:
            self._lacking.add(name)
            return False
        self._known[name] = (interest.version, known)
        self._want(name, topics - known, now)
        self._unwant(name, gone)
        for slot in self._sites:
            self._await(name, slot, topics)
        return True

    def keep(self, names: AbstractSet[str]) -> None:
        """Only these are members."""
        for name in [name for name in self._known if name not in names]:
            self._unwant(name, set(self.topics(name)))
            del self._known[name]
        self._lacking &= names
        self._unready = {at: v for at, v in self._unready.items() if at[0] in self._known}

    def _want(self, name: str, topics: set[str], now: int) -> None:
        for topic in sorted(topics):
            self._known[name][1].add(topic)
            self.wanting.setdefault(topic, {})[name] = None
            for site in self._sites.values():
                site.trees.want(topic, now)

    def _unwant(self, name: str, topics: set[str]) -> None:
        for topic in sorted(topics):
            self._known[name][1].discard(topic)
            names = self.wanting[topic]
            del names[name]
            if not names:
                del self.wanting[topic]
                for site in self._sites.values():
                    site.trees.unwant(topic)

    # Whether it arrives.

    def open(self, slot: int, now: int) -> None:
        """A site for this slot has begun here."""
        for topic in self.wanting:
            self._sites[slot].trees.want(topic, now)
        for name, (_, topics) in self._known.items():
            self._await(name, slot, topics)

    def close(self, slot: int) -> None:
        self._unready = {at: v for at, v in self._unready.items() if at[1] != slot}

    def _await(self, name: str, slot: int, topics: Iterable[str]) -> None:
        version, wanted = self._known[name]
        trees = self._sites[slot].trees
        waiting = {t for t in topics if (tree := trees.get(t)) is None or not tree.ready}
        if (name, slot) in self._unready:
            waiting |= self._unready[name, slot][1] & wanted
        self._unready[name, slot] = (version, waiting)
        self._look(name, slot)

    def tree_ready(self, slot: int, topic: str) -> None:
        for name in self.wanting.get(topic, ()):
            waiting = self._unready.get((name, slot))
            if waiting is not None:
                waiting[1].discard(topic)
                self._look(name, slot)

    def _look(self, name: str, slot: int) -> None:
        version, waiting = self._unready[name, slot]
        if not waiting:
            del self._unready[name, slot]
            self._say_ready(name, slot, version)
