"""The coordinator of one slot: its site in the ring, its place in the trees, events up and down.

It watches the sites next to it in the ring and in the trees: those that stay silent are tried at
their other addresses, then they are gone. What a neighbour may have missed it is told; what was
missed here is fetched, and a place in the trees is asked for anew (paper 004, 3.4).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from unisono.ens.scribe import messages as m
from unisono.ens.scribe.diversity import added
from unisono.ens.scribe.ids import group_id
from unisono.ens.scribe.messages import Contact, Item, Message, Numbers
from unisono.ens.scribe.options import Shape
from unisono.ens.scribe.pastry import Ring, Seen
from unisono.ens.scribe.recent import Recent
from unisono.ens.scribe.scouts import Scouts
from unisono.ens.scribe.survey import Surveys
from unisono.ens.scribe.trees import LONGEST, Tree, Trees

UNDER_WAY = 1 << 14  # events that the root has not confirmed: the oldest is not sent again
_CHECKED = 1 << 15  # events of which it is seen whether parents sent them, too


class Process(Protocol):
    """What a site needs of the process that it lives in."""

    recent: Recent

    def tell(self, to: str, message: Message) -> None: ...

    def contact(self, slot: int) -> Contact: ...

    def way(self, address: str) -> frozenset[str] | None: ...

    def tree_ready(self, slot: int, topic: str) -> None: ...

    def spread(self, item: Item, now: int) -> bool: ...

    def rival(self, contact: Contact) -> None: ...

    def tell_leader(self, offers: m.Offers) -> None: ...

    def found(self, domain: str, home: Contact | None, others: tuple[Contact, ...]) -> m.Found: ...


class Watched(Seen):
    """A neighbouring site."""

    __slots__ = ("heard_us",)

    def __init__(self, contact: Contact, now: int) -> None:
        super().__init__(contact)
        self.heard_us = now


class Site:
    """One slot of a cluster, at its active coordinator."""

    def __init__(self, slot: int, site: str, shape: Shape, process: Process, now: int) -> None:
        self.slot = slot
        self.site = site
        self.now = now
        self._shape = shape
        self._process = process
        self.ring = Ring(site, slot, shape.leaves)
        self.trees = Trees(
            self.ring,
            lambda: process.contact(slot),
            self.tell,
            self._route,
            lambda topic: tuple(process.recent.heads({topic}, self.now)),
            self._hear_heads,
            lambda topic: process.tree_ready(slot, topic),
            2 * shape.beat_us,
        )
        self._watched: dict[str, Watched] = {}
        self._used: dict[str, tuple[Contact, int]] = {}  # to route by, or as a root, and when
        self._roots: OrderedDict[str, Contact] = OrderedDict()
        self._under_way: OrderedDict[tuple[str, str, int], tuple[Item, int]] = OrderedDict()
        self._from_parent: dict[tuple[str, str, int], None] = {}
        self._to_check: deque[tuple[int, Item]] = deque()
        self._fed = Recent(shape.keep_us)  # what this tree has brought, unless all trees feed it
        self._surveys = Surveys(
            slot, shape.beat_us, lambda: process.contact(slot), self.tell, process.tell_leader
        )
        self.scouts = Scouts(shape)
        self._ticks = 0

    # Sending.

    def tell(self, contact: Contact, message: Message) -> None:
        self._process.tell(self._address(contact), message)

    def _route(self, hop: Contact, message: Message) -> None:
        """Send on; whoever is used to route by is watched for a while."""
        self._used[hop.site] = (hop, self.now)
        self.tell(hop, message)

    def _address(self, contact: Contact) -> str:
        """The active coordinator, or while it is silent one of the others, in turn."""
        watched = self._watched.get(contact.site)
        if watched is None or not self._silent(watched):
            return contact.addresses[0]
        return contact.addresses[self._ticks % len(contact.addresses)]

    def _silent(self, watched: Watched) -> bool:
        return self.now - watched.heard_us > self._shape.silence * self._shape.beat_us

    def at(self, now: int) -> Site:
        self.now = now
        return self

    # The ring.

    def join(self, contacts: Iterable[Contact], now: int) -> None:
        """Enter the ring through these."""
        contacts = list(contacts)
        self.meet(contacts, now)
        for contact in contacts[:3]:
            me = self._process.contact(self.slot)
            self.tell(contact, m.Find(self.slot, self.ring.id, me, ""))

    def meet(self, contacts: Iterable[Contact], now: int) -> None:
        """Perhaps they are of use; they may be known for another slot."""
        self.now = now
        self.ring.hear_of(msgspec.structs.replace(c, slot=self.slot, version=0) for c in contacts)
        self._ask()

    def _ask(self) -> None:
        for contact in self.ring.ask():
            self._ping(contact)

    def _ping(self, contact: Contact) -> None:
        self.tell(contact, self._ping_of(contact))

    def _ping_of(self, contact: Contact) -> m.Ping:
        me = self._process.contact(self.slot)
        return m.Ping(self.slot, contact.site, me, self.now, self.trees.below(contact.site))

    def find(self, find: m.Find, now: int) -> None:
        """On its way to the nearest; an asker that joins is told whom this site knows."""
        self.now = now
        asker = find.asker
        hop = self.ring.next_hop(find.key)
        if asker is not None:
            if asker.site == self.site:
                return
            if hop is not None and hop.site == asker.site:
                hop = None
            known = (*self.ring.row_for(asker.site), self._process.contact(self.slot))
            self._process.tell(asker.addresses[0], m.Known(self.slot, known))
        if hop is not None and find.hops < 64:
            self._route(hop, msgspec.structs.replace(find, hops=find.hops + 1))
            return
        if find.reply_to:
            mine = self._process.contact(self.slot)
            known_site = self.ring.known.get(find.domain)
            home = mine if mine.site == find.domain else None
            if home is None and known_site is not None:
                home = known_site.contact
            others = (mine, *self.ring.leaves)
            self._process.tell(find.reply_to, self._process.found(find.domain, home, others[:8]))

    def hear_of(self, contacts: Iterable[Contact], now: int) -> None:
        self.now = now
        contacts = list(contacts)
        self.ring.hear_of(contacts)
        for contact in contacts:
            self._see_rival(contact)
        self._ask()

    def _see_rival(self, contact: Contact) -> None:
        if contact.site == self.site and contact.slot == self.slot:
            self._process.rival(contact)

    def ping(self, ping: m.Ping, now: int) -> None:
        self.now = now
        me = self._process.contact(self.slot)
        sender = ping.me.addresses[0]
        if ping.site != self.site:
            self._process.tell(sender, m.Pong(self.slot, me, now))
            return
        site = ping.me.site
        known = self.ring.known.get(site)
        other = known.contact if known is not None else ping.me
        self._heard(ping.me, None)
        if other.addresses[0] != sender and other.version >= ping.me.version:
            self._process.tell(sender, m.Known(self.slot, (other,)))  # two claim the same site
            self._process.tell(other.addresses[0], m.Known(self.slot, (ping.me,)))
        topics = {topic for topic, _ in self.trees.of_child(site)}
        heads = self._process.recent.heads(topics, now) if topics else []
        above = self.trees.above_them(site)
        below = self.trees.below(site)
        self._process.tell(sender, m.Pong(self.slot, me, ping.sent_us, above, below, tuple(heads)))
        self._compare(ping.me, ping.below)

    def pong(self, pong: m.Pong, now: int) -> None:
        self.now = now
        sender = pong.me.addresses[0]
        self._heard(pong.me, max(0, now - pong.sent_us))
        for topic, source, number in pong.heads:
            if self.trees.get(topic) is not None:
                self._process.recent.told(topic, source, number, now)
        if pong.above != self.trees.above(pong.me.site):
            self._process.tell(sender, m.AskPaths(self.slot, self.site))
        self._compare(pong.me, pong.below)

    def _compare(self, other: Contact, below: int) -> None:
        """Does it hang below us where we think so?"""
        if below != self.trees.below_us(other.site):
            me = self._process.contact(self.slot)
            self._process.tell(other.addresses[0], m.AskTopics(self.slot, me))

    def _heard(self, contact: Contact, rtt_us: int | None) -> None:
        self._see_rival(contact)
        if contact.site == self.site:
            return
        watched = self._watched.get(contact.site)
        if watched is not None:
            watched.heard_us = self.now
            if watched.hear(contact):
                self.trees.moved(contact)
        if self.ring.hear(contact, rtt_us):
            if rtt_us is None:
                self._ping(contact)  # it shall know us, and we how far it is
            self.trees.tick(self.now)  # it may be the root of something

    def _hear_heads(self, heads: tuple[m.Head, ...], served: bool) -> None:
        """What a new parent has heard: for us it was before, or we have missed it."""
        if not served:
            self._process.recent.begin(heads)
        else:
            for topic, source, number in heads:
                self._process.recent.told(topic, source, number, self.now)

    def spoke(self, site: str, now: int) -> None:
        """Something came from this site."""
        watched = self._watched.get(site)
        if watched is not None:
            watched.heard_us = now

    def ask_known(self, ask: m.AskKnown, now: int) -> None:
        self.now = now
        known = tuple(self.ring.row_for(ask.me.site))
        self._process.tell(ask.me.addresses[0], m.Known(self.slot, known))
        self._heard(ask.me, None)

    # Life.

    def tick(self, now: int) -> None:
        """Once a beat."""
        self.now = now
        self._ticks += 1
        long_ago = now - 2 * self._shape.silence * self._shape.beat_us
        self._used = {s: used for s, used in self._used.items() if used[1] > long_ago}
        used = [contact for contact, _ in self._used.values()]
        around = {c.site: c for c in (*self.ring.neighbours, *used)}
        around.update(self.trees.around)
        around.pop(self.site, None)
        self._watched = {
            site: self._watched.get(site) or Watched(contact, now)
            for site, contact in around.items()
        }
        for site, watched in list(self._watched.items()):
            if now - watched.heard_us > 2 * self._shape.silence * self._shape.beat_us:
                self._gone(site)
            elif self._silent(watched):
                for address in watched.contact.addresses:
                    self._process.tell(address, self._ping_of(watched.contact))
            else:
                self._ping(watched.contact)
        for contact in self.ring.give_up():
            self.scouts.unreached(contact)
        for contact in self.ring.ask(again=True):
            self._ping(contact)
        self._look_around()
        self.trees.tick(now)
        if self._shape.recover == "all":
            self.trees.unite(self._ticks)
        self._send_again()
        self._check()
        self._fed.tidy(now)
        self._surveys.tick(now)

    def _look_around(self) -> None:
        """Ask one site in turn whom it knows; the next ones on either side now and then. Who has
        not answered is asked every time, until it does or is gone."""
        beside = self.ring.neighbours
        other = self.ring.look_after()
        asked = {c.site: c for c in (*self.ring.unanswered, *((other,) if other else ()))}
        for site, contact in asked.items():
            if site not in self._watched:
                known = self.ring.known[site]
                known.unanswered += 1
                if known.unanswered > self._shape.silence:
                    self._gone(site)
                else:
                    self._ping(contact)
        if self._ticks % 2 == 0 and beside:
            other = beside[self._ticks // 2 % len(beside)]
        if other is not None:
            self.tell(other, m.AskKnown(self.slot, self._process.contact(self.slot)))

    def _gone(self, site: str) -> None:
        known = self.ring.known.get(site)
        self.bye(site)
        if known is not None:
            self.scouts.lost(known.contact)

    def bye(self, site: str) -> None:
        """It is no more; what was sent up there goes elsewhere."""
        hops = {topic: self._above(topic) for topic in {item.topic for item in self.under_way}}
        there = {topic for topic, hop in hops.items() if hop is not None and hop.site == site}
        lost = [item for item in self.under_way if item.topic in there]
        self._watched.pop(site, None)
        self._used.pop(site, None)
        self.ring.forget(site)
        self.scouts.forget(site)
        for topic in [t for t, root in self._roots.items() if root.site == site]:
            del self._roots[topic]
        self.trees.lost(site, self.now)
        if self._shape.recover == "all":
            for item in lost:
                self._send_up(item)

    def topics(self, ask: m.AskTopics) -> None:
        """A parent asks what it is one for; perhaps it is none."""
        topics = tuple(topic for topic, _ in self.trees.of_parent(ask.me.site))
        self.tell(ask.me, m.Topics(self.slot, self._process.contact(self.slot), topics))

    def leave(self) -> None:
        """Say goodbye to all that know this site: the process goes and nobody follows here."""
        known = {site: seen.contact for site, seen in self.ring.known.items()}
        for contact in (known | self.trees.around).values():
            self.tell(contact, m.Bye(self.slot, self.site))

    # Events.

    def up(self, item: Item, now: int) -> None:
        """To the root of its topic, until that confirms it."""
        self.now = now
        if self._towards_root(item.topic, self.site) is None:
            self.feed(item, now)  # this is the root
            if not self._apart(item.topic):
                return
        self._under_way[item.topic, item.source, item.number] = (item, now)
        if len(self._under_way) > UNDER_WAY:
            self._under_way.popitem(last=False)
        self._send_up(item)

    @property
    def under_way(self) -> list[Item]:
        """What no root has confirmed."""
        return [item for item, _ in self._under_way.values()]

    def _apart(self, topic: str) -> bool:
        """A root perhaps for want of others, who shall get it when they are heard."""
        young = self._ticks < self._shape.silence
        apart = young or self.scouts.apart(self.ring, group_id(topic, self.slot))
        return self._shape.recover == "all" and apart

    def _above(self, topic: str) -> Contact | None:
        """Where events of the topic are sent up to."""
        return self._roots.get(topic) or self._towards_root(topic, self.site)

    def _send_up(self, item: Item) -> None:
        hop = self._above(item.topic)
        if hop is not None:
            self._route(hop, m.Up(self.slot, item, self._process.contact(self.slot)))

    def _towards_root(self, topic: str, origin: str) -> Contact | None:
        """The next site on the way, None at the root. Where the ring ends and the root is out of
        reach, up the tree: that knows a way around what is cut."""
        hop = self.ring.next_hop(group_id(topic, self.slot))
        tree = self.trees.get(topic)
        if hop is None and tree is not None and self._shape.recover == "all":
            hop = tree.parent
        return hop if hop is not None and hop.site != origin else None

    def _send_again(self) -> None:
        now, keep_us = self.now, self._shape.keep_us
        again = self._shape.recover == "all"
        due = now - 2 * self._shape.beat_us
        ways: dict[str, tuple[bool, bool]] = {}  # topic -> whether this is the root, for certain
        for key, (item, sent_us) in list(self._under_way.items()):
            if sent_us > due:
                continue
            if not again or now - sent_us > keep_us:
                del self._under_way[key]
            elif self._ticks % 2 == 0:
                topic = item.topic
                if topic not in ways:
                    self._roots.pop(topic, None)
                    root = self._towards_root(topic, self.site) is None
                    ways[topic] = root, root and not self._apart(topic)
                root, certain = ways[topic]
                if not root:
                    self._send_up(item)
                elif certain:
                    del self._under_way[key]
                    self._process.spread(item, now)

    def take_up(self, up: m.Up, now: int) -> None:
        """For the root: this site, or one further on."""
        self.now = now
        topic = up.item.topic
        hop = self._towards_root(topic, up.origin.site)
        if hop is not None and up.hops < LONGEST:
            self._route(hop, msgspec.structs.replace(up, hops=up.hops + 1))
            return
        self._process.spread(up.item, now)
        self.feed(up.item, now)
        me = self._process.contact(self.slot)
        item = up.item
        took = m.Took(self.slot, topic, item.source, item.number, me)
        self._process.tell(up.origin.addresses[0], took)

    def took(self, took: m.Took, now: int) -> None:
        self.now = now
        self._under_way.pop((took.topic, took.source, took.number), None)
        self._roots[took.topic] = took.root
        self._roots.move_to_end(took.topic)
        if len(self._roots) > 1024:
            self._roots.popitem(last=False)
        self.spoke(took.root.site, now)

    def heard(self, item: Item, now: int) -> None:
        """This process has an event that it did not have, over whatever way."""
        self.now = now
        tree = self.trees.get(item.topic)
        if tree is None:
            return
        if self._shape.recover == "all":
            self._pass_down(tree, item)
        if tree.parent is not None and self._shape.recover != "none":
            self._to_check.append((now, item))
            if len(self._to_check) > _CHECKED:
                self._to_check.popleft()

    def feed(self, item: Item, now: int) -> None:
        """It came over this tree and goes on in it; if all trees feed each other, it has."""
        self.now = now
        if self._shape.recover != "all" and self._fed.add(item, now):
            tree = self.trees.get(item.topic)
            if tree is not None:
                self._pass_down(tree, item)

    def _pass_down(self, tree: Tree, item: Item) -> None:
        if tree.children:
            down = m.Down(self.slot, self.site, item)
            for child in tree.children.values():
                self.tell(child, down)

    def came_down(self, down: m.Down, now: int) -> None:
        """A parent has sent it."""
        self.spoke(down.site, now)
        item = down.item
        tree = self.trees.get(item.topic)
        if tree is not None and tree.parent is not None and tree.parent.site == down.site:
            self._from_parent[item.topic, item.source, item.number] = None
        self._process.spread(item, now)
        self.feed(item, now)

    # What was missed.

    def _check(self) -> None:
        """What came another way and not from the parent: it may not have it."""
        due = self.now - 2 * self._shape.beat_us
        have: dict[str, dict[tuple[str, str], list[int]]] = {}
        while self._to_check and self._to_check[0][0] <= due:
            at, item = self._to_check.popleft()
            key = (item.topic, item.source, item.number)
            if key in self._from_parent:
                del self._from_parent[key]
                continue
            tree = self.trees.get(item.topic)
            if tree is None or tree.parent is None or tree.since_us > at:
                continue
            streams = have.setdefault(tree.parent.site, {})
            streams.setdefault((item.topic, item.source), []).append(item.number)
        for site, streams in have.items():
            numbers = tuple((t, s, tuple(several)) for (t, s), several in streams.items())
            watched = self._watched.get(site)
            if watched is not None:
                me = self._process.contact(self.slot)
                self.tell(watched.contact, m.Have(self.slot, me, numbers))
        if len(self._from_parent) > 2 * _CHECKED:
            self._from_parent.clear()

    def have(self, have: m.Have, now: int) -> None:
        """A child has something that this site did not send."""
        self.now = now
        missed: list[Numbers] = []
        for topic, source, numbers in have.numbers:
            if self.trees.get(topic) is None:
                continue
            lacking = tuple(n for n in numbers if not self._process.recent.heard(topic, source, n))
            if lacking:
                missed.append((topic, source, lacking))
        if missed:
            self._process.tell(have.me.addresses[0], m.Fetch(tuple(missed)))
            if have.late:
                for topic in dict.fromkeys(topic for topic, _, _ in missed):
                    self.trees.again(topic, now)

    def whom_to_ask(self, topic: str) -> Contact | None:
        """The parent in this tree; at the root, which may be new there, the children in turn."""
        tree = self.trees.get(topic)
        if tree is None or tree.parent is not None or not tree.children:
            return tree.parent if tree is not None else None
        children = list(tree.children.values())
        return children[self._ticks // self._shape.trees % len(children)]

    # Which parents.

    def adopt(self, adopt: m.Adopt, now: int) -> None:
        self.now = now
        self.spoke(adopt.parent.site, now)
        others = self.trees.adopt(adopt, now)
        tree = self.trees.get(adopt.topic)
        if tree is None or tree.parent is None or tree.parent.site != adopt.parent.site:
            return
        self._watched.setdefault(adopt.parent.site, Watched(adopt.parent, now))
        new = adopt.topic in self.trees.adopted
        self.trees.adopted.clear()
        if new and self._shape.recover == "all":
            since_us = now - adopt.age_us - 2 * self._shape.beat_us
            kept = tuple(self._process.recent.kept(adopt.topic, since_us))
            if kept:  # perhaps we were apart: it may lack them, and those above it
                me = self._process.contact(self.slot)
                self.tell(adopt.parent, m.Have(self.slot, me, kept, late=False))
        if new and self._shape.diverse:
            self._surveys.begin(adopt.topic, (adopt.parent, *others), now)

    def probe(self, probe: m.Probe, now: int) -> None:
        """Would we take this child, and over which devices?"""
        self.now = now
        tree = self.trees.get(probe.topic)
        child = probe.child
        if tree is None or not tree.ready or child.site in tree.path or child.site == self.site:
            return
        around = [c for c in (*tree.children.values(), tree.parent) if c is not None]
        addresses = [contact.addresses[0] for contact in around if contact.site != child.site]
        ways = [way for address in addresses if (way := self._process.way(address)) is not None]
        found = self._process.way(child.addresses[0])
        way = found or frozenset()
        known = self.ring.known.get(child.site)
        delay = known.rtt_us if known is not None else 0
        me = self._process.contact(self.slot)
        devices = tuple(sorted(way))
        new = added(ways, way)
        measured = found is not None
        offered = m.Offered(self.slot, probe.topic, me, devices, new, delay, measured)
        self.tell(child, offered)


# Messages to whoever is active in their slot.
AT_SITE: dict[type[Message], Callable[[Site, Any, int], None]] = {
    m.Ping: Site.ping,
    m.Pong: Site.pong,
    m.Find: Site.find,
    m.AskKnown: Site.ask_known,
    m.Graft: lambda site, graft, now: site.at(now).trees.graft(graft, now),
    m.Adopt: Site.adopt,
    m.Refuse: lambda site, refuse, now: site.at(now).trees.refuse(refuse, now),
    m.Prune: lambda site, prune, now: site.at(now).trees.prune(prune.topic, prune.site),
    m.Path: lambda site, path, now: site.at(now).trees.path(path, now),
    m.AskTopics: lambda site, ask, now: site.at(now).topics(ask),
    m.Topics: lambda site, topics, now: site.at(now).trees.topics(topics, now),
    m.Bye: lambda site, bye, now: site.at(now).bye(bye.site),
    m.AskPaths: lambda site, ask, now: site.at(now).trees.paths(ask),
    m.Probe: Site.probe,
    m.Offered: lambda site, offered, now: site._surveys.hear(offered),
    m.Take: lambda site, take, now: site.at(now).trees.switch(take.topic, take.parent),
    m.Up: Site.take_up,
    m.Took: Site.took,
    m.Down: Site.came_down,
    m.Have: Site.have,
}
