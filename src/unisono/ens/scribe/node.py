"""One process of the mesh: an event service by itself, driven from outside.

It belongs to the cluster of its domain, coordinates slots of it if the cluster wants so, and
delivers what its application subscribes to, once. Drivers call `start`, `receive`, `tick`,
`publish`, `subscribe`, `unsubscribe` and `leave` with the time, and carry out what these return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from random import Random
from typing import Any

import msgspec

from unisono.core.effects import Arrive, Done, Effect
from unisono.ens.scribe import messages as m
from unisono.ens.scribe.cluster import Cluster
from unisono.ens.scribe.contacts import Contacts
from unisono.ens.scribe.ids import site_id
from unisono.ens.scribe.interest import Subscriptions, Wishes
from unisono.ens.scribe.messages import Contact, Item, Member, Message, View, born
from unisono.ens.scribe.options import Shape
from unisono.ens.scribe.recent import Recent
from unisono.ens.scribe.scouts import MEMBERS, SITES
from unisono.ens.scribe.site import AT_SITE, Site
from unisono.ens.scribe.survey import Decisions

_BATCH_BYTES = 1 << 18  # of events that were asked for, in one message
_ASKED = 5  # of them, for the rest of the mesh, at a time
_NUMBERED = 1 << 16  # topics whose last number is kept, of those published to
_HOPS = 8  # of what is published, while views differ on who coordinates


class Tell(Effect, frozen=True):
    """Send a message to a process."""

    to: str
    message: Message


class Mesh:
    """A process of the mesh, without I/O."""

    def __init__(
        self,
        name: str,
        address: str,
        domain: str,
        shape: Shape,
        rng: Random,
        seeds: Iterable[str] = (),
        candidate: bool = True,
        way: Callable[[str], frozenset[str] | None] = lambda address: frozenset(),
    ) -> None:
        self.name = name
        self.shape = shape
        self.way = way
        self.now = 0
        self.recent = Recent(shape.keep_us)
        self._me = Member(name, address, candidate)
        self.address = address
        self._rng = rng
        self.seeds = [seed for seed in seeds if seed != address]
        self.cluster = Cluster(domain, self._me, shape, self.tell)
        self.sites: dict[int, Site] = {}
        self._out: list[Effect] = []
        self._loop: list[Message] = []  # what this process tells itself
        self._view: View | None = None
        self._contacts = Contacts()
        self._around: tuple[Contact, ...] = ()  # sites that a coordinator of ours hears
        self._left = False
        self._ticks = 0
        self._rival_beats: set[int] = set()  # in which another claimed our site
        self._source = name  # of what is published here
        self._numbers: dict[str, int] = {}  # by topic, the last one published
        self._subscriptions = Subscriptions(name, self.recent)
        self._wishes = Wishes(self.sites, self._say_ready)
        self._decisions = Decisions()

    @property
    def settled(self) -> bool:
        """Whether the process has its place in the cluster, and in the rings if it coordinates."""
        return self.cluster.joined and all(site.ring.settled for site in self.sites.values())

    @property
    def subscribed(self) -> Set[str]:
        return self._subscriptions.topics

    @property
    def neighbours(self) -> set[str]:
        """The addresses of other sites that this process may choose among as parents."""
        return {
            known.contact.addresses[0]
            for site in self.sites.values()
            for known in site.ring.known.values()
        }

    @property
    def clusters(self) -> dict[str, tuple[str, ...]]:
        """Those around here that live, and the addresses of their coordinators; our own first."""
        if not self.cluster.joined:
            return {}
        mine = self.cluster.contact(0)
        rings = [c for site in self.sites.values() for c in site.ring.leaves]
        others = {c.site: c.addresses for c in (rings if self.sites else self._around)}
        return {
            mine.site: mine.addresses,
            **{s: others[s] for s in sorted(others) if s != mine.site},
        }

    # What the driver asks for.

    def start(self, now: int) -> list[Effect]:
        self.now = now
        self.recent.start(now)
        if not self.seeds:
            self.cluster.found(now)
        else:
            self._seek()
        return self._done()

    def receive(self, sender: str, message: Message, now: int) -> list[Effect]:
        if self._left:
            return []  # else it would ask to be let in again, by the view that leaves it out
        self.now = now
        self._handle(sender, message)
        return self._done()

    def tick(self, now: int) -> list[Effect]:
        """To be called every `shape.beat_us`."""
        self.now = now
        self._ticks += 1
        cluster = self.cluster
        if not cluster.joined:
            self._seek()
            return self._done()
        cluster.tick(now)
        if cluster.cut_off(now):
            if self._me.candidate:
                cluster.part(now)
            else:
                self._seek()  # a guest does not coordinate as long as it finds somebody who does
        self._look_at_view()
        self._beat()
        for site in list(self.sites.values()):
            site.tick(now)
        self._decide()
        self._scout()
        self._ask_for_missing()
        self.recent.tidy(now)
        assert cluster.view is not None
        self._stay_together(cluster.view)
        self._answer_tickets()
        if self._subscriptions.waiting and self._ticks % self.shape.silence == 0:
            self._tell_interest(self._subscriptions.all)  # perhaps the answer was lost
        return self._done()

    def publish(self, topic: str, frame: bytes, now: int) -> list[Effect]:
        self.now = now
        if len(self._numbers) >= _NUMBERED and topic not in self._numbers:
            self._source += "+"  # else those who remember would take new numbers for old ones
            self._numbers.clear()
        number = self._numbers.get(topic, 0) + 1
        self._numbers[topic] = number
        item = Item(topic, self._source, number, frame)
        self.spread(item, now)
        for slot in range(self.shape.trees):
            self.tell(self.cluster.active(slot).address, m.Publish(slot, item))
        return self._done()

    def subscribe(self, topic: str, ticket: str, now: int) -> list[Effect]:
        """Done(ticket) when events of the topic arrive here."""
        self.now = now
        change = self._subscriptions.add(topic, ticket, now)
        if change is not None:
            self._tell_interest(change)
        self._answer_tickets()
        return self._done()

    def unsubscribe(self, topic: str, now: int) -> list[Effect]:
        self.now = now
        change = self._subscriptions.remove(topic)
        if change is not None:
            self._tell_interest(change)
        return self._done()

    def leave(self, now: int) -> list[Effect]:
        """Last words; what comes afterwards is not heard."""
        self.now = now
        self._left = True
        self.cluster.leave()
        if self.cluster.view is not None and len(self.cluster.view.members) == 1:
            for site in self.sites.values():
                site.leave()
        return self._done()

    def _done(self) -> list[Effect]:
        while self._loop or self.cluster.view is not self._view:
            self._look_at_view()
            while self._loop:
                self._handle(self.address, self._loop.pop(0))
        out, self._out = self._out, []
        return out

    def tell(self, to: str, message: Message) -> None:
        if to == self.address:
            self._loop.append(message)
        else:
            self._out.append(Tell(to, message))

    # Finding the cluster.

    def _seek(self) -> None:
        """Ask those that are known where the cluster of this domain is."""
        asked = sorted(self._contacts.addresses - {self.address, *self.seeds})
        inside = self.cluster.joined and not self.cluster.cut_off(self.now)
        me = self.cluster.contact(0) if inside else None
        for address in [*self.seeds, *self._rng.sample(asked, min(_ASKED, len(asked)))]:
            self.tell(address, m.Who(self.cluster.domain, self.address, me))

    def _who(self, who: m.Who) -> None:
        cluster = self.cluster
        if who.me is not None:
            self._meet((who.me,))
        if cluster.view is None:
            return
        if who.domain in ("", cluster.view.site):
            found = self.found(cluster.domain, cluster.contact(0), self._living or self._others)
            self.tell(who.asker, found)
        elif 0 in self.sites:
            find = m.Find(0, site_id(who.domain, 0), None, who.asker, who.domain)
            ring = self.sites[0].ring
            fellow = who.me is not None and who.me.site == cluster.view.site
            if fellow and ring.leaves and ring.next_hop(find.key) is None:
                # That it is not heard here says nothing: perhaps we are the ones who are cut off.
                other = self._rng.choice(ring.leaves).addresses[0]
                self.tell(other, msgspec.structs.replace(find, hops=1))
            else:
                self.sites[0].find(find, self.now)
        else:
            self.tell(cluster.active(0).address, who)

    def found(self, domain: str, home: Contact | None, others: tuple[Contact, ...]) -> m.Found:
        shape = self.shape
        return m.Found(
            domain, home, others, shape.trees, shape.backups, shape.beat_us, shape.silence
        )

    def _found(self, found: m.Found) -> None:
        self._meet(found.others)
        cluster = self.cluster
        if not cluster.joined:  # a mesh has one shape: that of whoever began it
            self.shape = cluster.shape = msgspec.structs.replace(
                self.shape,
                trees=found.trees,
                backups=found.backups,
                beat_us=found.beat_us,
                silence=found.silence,
            )
            cluster.domain = cluster.domain or found.domain
        if found.domain != cluster.domain:
            return
        home, view = found.home, cluster.view
        outside = view is None or cluster.cut_off(self.now)
        if home is not None:
            if outside or (view is not None and home.site != view.site):
                for address in home.addresses[:2]:
                    self.tell(address, m.Enter(cluster.domain, self._me))
        elif outside:
            if cluster.domain:
                cluster.found(self.now)
        elif view is not None and cluster.leads and view.site != cluster.domain:
            cluster.rename(cluster.domain, self.now)  # the others are gone

    def _meet(self, contacts: tuple[Contact, ...]) -> None:
        self._contacts.remember(contacts)
        self._see_rivals(contacts)
        for site in self.sites.values():
            site.meet(contacts, self.now)
        if not self.sites and self.cluster.joined:  # those who can make use of it hear it, too
            for slot in range(self.shape.trees):
                known = (msgspec.structs.replace(c, slot=slot, version=0) for c in contacts)
                self.tell(self.cluster.active(slot).address, m.Known(slot, tuple(known)))

    def _see_rivals(self, contacts: Iterable[Contact]) -> None:
        for contact in contacts:
            if self._view is not None and contact.site == self._view.site:
                self.rival(contact)

    @property
    def _living(self) -> tuple[Contact, ...]:
        """Other sites that are heard, here or by our coordinator: others may be told of these."""
        leaves = {c.site: c for site in self.sites.values() for c in site.ring.leaves}
        return tuple(leaves.values() if self.sites else self._around)[:8]

    @property
    def _others(self) -> tuple[Contact, ...]:
        """Those, or else such as were there once."""
        living = {contact.site: contact for contact in self._living}
        return tuple({**self._contacts.sites, **living}.values())[:8]

    def rival(self, contact: Contact) -> None:
        """Somebody else claims to be this site."""
        view = self.cluster.view
        assert view is not None
        mine = {member.address for member in view.members}
        if contact.addresses[0] in mine:
            return
        ours = (born(view.number), -view.number, self.cluster.leader.address)
        if (born(contact.version), -contact.version, contact.addresses[0]) > ours:
            known = m.Known(contact.slot, (self.cluster.contact(contact.slot),))
            self.tell(contact.addresses[0], known)  # it will give in
            return
        if self.cluster.leads:
            self._rival_beats.add(self._ticks)
            for address in contact.addresses[:2]:
                self.tell(address, m.Enter(self.cluster.domain, self._me))
            if len(self._rival_beats) > 2 * self.shape.silence:  # it cannot be reached
                self._rival_beats.clear()
                self.cluster.rename(f"{self.cluster.domain}~{self.name}", self.now)
        else:
            self.tell(self.cluster.leader.address, m.Known(contact.slot, (contact,)))

    def _stay_together(self, view: View) -> None:
        """Now and then: do the seeds know others? Is there a way back to the rest of the domain?"""
        every = 4 * self.shape.silence
        if self._contacts.fellows:  # those that are reached may tell others
            every = self.shape.silence
        elif not self.sites:  # its seeds may live where those of the coordinators do not
            every *= max(1, len(view.members) // 4)
        if self._rng.randrange(every) == 0:
            self._seek()
        if 0 in self.sites and self._ticks % self.shape.silence == 0:
            leaves = tuple(self.sites[0].ring.leaves)
            for member in view.members:
                if member.name != self.name:  # whoever is on its own one day knows others
                    self.tell(member.address, m.Known(0, leaves))

    # The cluster has changed.

    def contact(self, slot: int) -> Contact:
        return self.cluster.contact(slot)

    def _look_at_view(self) -> None:
        view = self.cluster.view
        if view is self._view or view is None:
            return
        before, self._view = self._view, view
        self._rival_beats.clear()
        moved = before is not None and before.site != view.site
        slots = self.cluster.slots
        self._contacts.changed(before, view, self.cluster.domain)
        if moved:
            for site in self.sites.values():
                site.leave()
        for slot in [s for s in self.sites if moved or s not in slots]:
            self._contacts.remember(self.sites[slot].ring.leaves)
            under_way = self.sites.pop(slot).under_way
            for item in under_way:  # who comes after sees to it
                self.tell(self.cluster.active(slot).address, m.Publish(slot, item))
            self._wishes.close(slot)
        self._wishes.keep({member.name for member in view.members})
        for slot in slots:
            if slot not in self.sites:
                self._open_site(slot, view)
        self._tell_interest(self._subscriptions.all)

    def _open_site(self, slot: int, view: View) -> None:
        site = self.sites[slot] = Site(slot, view.site, self.shape, self, self.now)
        site.join([c for c in self._others if c.site != view.site], self.now)
        self._wishes.open(slot, self.now)

    def _beat(self) -> None:
        cluster = self.cluster
        view = cluster.view
        assert view is not None
        version, leader = self._subscriptions.version, cluster.leader.name
        heard = tuple(x.name for x in view.members if cluster.hears(x.name, self.now))
        coordinators = {member.name for member in cluster.coordinators}
        for member in view.members:
            if member.name == self.name:
                continue
            if self.name in coordinators:
                backs = member.name in coordinators  # it shall know what to fetch if it takes over
                topics = self._wishes.wanted if backs else self._wishes.topics(member.name)
                told = topics and self.sites
                heads = tuple(self.recent.heads(topics, self.now)) if told else ()
                known = heard if member == cluster.leader else ()
                beat = m.Beat(self.name, view.site, view.number, leader, version, known, heads)
            elif member.name in coordinators or not cluster.hears(cluster.leader.name, self.now):
                beat = m.Beat(self.name, view.site, view.number, leader, version)
            else:
                continue
            self.tell(member.address, beat)

    # Interest.

    def _tell_interest(self, interest: m.Interest) -> None:
        for member in self.cluster.coordinators:
            self.tell(member.address, interest)

    def _interest(self, sender: str, interest: m.Interest) -> None:
        known = self.cluster.member(interest.name) is not None
        if known and not self._wishes.hear(interest, self.now):
            self.tell(sender, m.AskInterest())

    def tree_ready(self, slot: int, topic: str) -> None:
        self._wishes.tree_ready(slot, topic)

    def _say_ready(self, name: str, slot: int, version: int) -> None:
        member = self.cluster.member(name)
        if member is not None:
            heads = tuple(self.recent.heads(self._wishes.topics(name), self.now))
            self.tell(member.address, m.Ready(slot, version, heads))

    def _is_ready(self, ready: m.Ready) -> None:
        self._subscriptions.ready(ready, self.now)
        self._answer_tickets()

    def _answer_tickets(self) -> None:
        """A subscription is effective when all trees bring its events; later, when one does."""
        if self._subscriptions.waiting:
            before_us = self.now - 2 * self.shape.silence * self.shape.beat_us
            done = self._subscriptions.effective(self.shape.trees, before_us)
            self._out += map(Done, done)

    # Events.

    def spread(self, item: Item, now: int) -> bool:
        """An event has come: to the application, to the members that want it, down the trees."""
        if not self.recent.add(item, now):
            return False
        if self._subscriptions.wants(item):
            self._out.append(Arrive(item.topic, item.frame))
        if self.sites:
            wanting = self._wishes.wanting.get(item.topic)
            if wanting:
                cast = m.Cast(next(iter(self.sites)), item)
                partners = {member.name: None for member in self.cluster.actives}
                for name in wanting | partners:
                    if name not in (self.name, item.source):
                        member = self.cluster.member(name)
                        if member is not None:
                            self.tell(member.address, cast)
            for site in self.sites.values():
                site.heard(item, now)
        return True

    def _ask_for_missing(self) -> None:
        if self.shape.recover != "all":
            return
        asks: dict[str, list[m.Numbers]] = {}
        for missing in self.recent.missing(self.now - self.shape.keep_us):
            topic = missing[0]
            whom = [x.address for x in self.cluster.actives if x.name != self.name]
            for site in self.sites.values():
                other = site.whom_to_ask(topic)
                if other is not None:
                    whom.append(other.addresses[0])
            if whom and (topic in self.subscribed or self.sites):
                asks.setdefault(whom[self._ticks % len(whom)], []).append(missing)
        for address, numbers in asks.items():
            self.tell(address, m.Fetch(tuple(numbers)))

    # Which parents: for all trees together, at the leader.

    def tell_leader(self, offers: m.Offers) -> None:
        self.tell(self.cluster.leader.address, offers)

    def _decide(self) -> None:
        for take in self._decisions.decide(self.shape.trees, self.now, 2 * self.shape.beat_us):
            self.tell(self.cluster.active(take.slot).address, take)

    # Who reaches the other clusters.

    def _scout(self) -> None:
        if self.shape.recover != "all":
            return
        actives = self.cluster.actives
        members = [member for member in self.cluster.candidates if member not in actives]
        for slot, site in self.sites.items():
            contacts = site.scouts.where(site.ring, self._contacts.sites.values(), self.now)
            if contacts and members:
                scout = m.Scout(slot, self.address, contacts)
                self._knock(self.address, scout)
                for member in self._rng.sample(members, min(MEMBERS, len(members))):
                    self.tell(member.address, scout)
            better = site.scouts.best(self.now)
            if better is not None:
                self.cluster.give_way(slot, better)

    def _knock(self, sender: str, scout: m.Scout) -> None:
        for contact in scout.contacts[:SITES]:
            for address in contact.addresses:
                if address != self.address:
                    self.tell(address, m.Scout(scout.slot, scout.by))
        if not scout.contacts and scout.slot in self.sites:
            self.tell(sender, m.Reach(scout.slot, scout.by, self.sites[scout.slot].site))

    def _reach(self, sender: str, reach: m.Reach) -> None:
        site = self.sites.get(reach.slot)
        if reach.by == self.address:
            if site is not None and reach.site != site.site:  # a fellow: it had another site
                site.scouts.reach(reach)
                if not reach.name:  # it lives, at that address
                    site.meet((Contact(reach.site, reach.slot, 0, (sender,)),), self.now)
        elif not reach.name:
            self.tell(reach.by, msgspec.structs.replace(reach, name=self.name))

    # Messages.

    def _handle(self, sender: str, message: Message) -> None:
        at_site = AT_SITE.get(type(message))
        if at_site is None:
            _HERE[type(message)](self, sender, message)
            return
        slot: int = message.slot  # type: ignore[attr-defined]
        site = self.sites.get(slot)
        if site is not None:
            at_site(site, message, self.now)
        elif self.cluster.joined and 0 <= slot < self.shape.trees:
            active = self.cluster.active(slot)  # it moved; the sender will hear of it
            if active.address not in (sender, self.address):
                self.tell(active.address, message)

    def _hear_of(self, sender: str, known: m.Known) -> None:
        site = self.sites.get(known.slot)
        if site is not None:
            site.hear_of(known.contacts, self.now)
        else:
            if self.cluster.joined and sender == self.cluster.active(0).address:
                self._around = known.contacts
            self._contacts.remember(known.contacts)
            self._see_rivals(known.contacts)

    def _heard_beat(self, sender: str, beat: m.Beat) -> None:
        self.cluster.beat(beat, self.now)
        for topic, source, number in beat.heads:
            if topic in self.subscribed or (self.sites and topic in self._wishes.wanted):
                self.recent.told(topic, source, number, self.now)
            elif not self.sites:
                self.recent.begin(((topic, source, number),))
        known = max(0, self._wishes.version(beat.name))
        if beat.interest > known and self._me in self.cluster.coordinators:
            self.tell(sender, m.AskInterest())

    def _publish(self, publish: m.Publish) -> None:
        self.spread(publish.item, self.now)
        site = self.sites.get(publish.slot)
        if site is not None:
            site.up(publish.item, self.now)
        elif self.cluster.joined and publish.slot < self.shape.trees and publish.hops < _HOPS:
            on = m.Publish(publish.slot, publish.item, publish.hops + 1)
            self.tell(self.cluster.active(publish.slot).address, on)

    def _fetch(self, sender: str, fetch: m.Fetch) -> None:
        batch: list[Item] = []
        size = 0
        for item in self.recent.get(fetch.numbers):
            batch.append(item)
            size += len(item.frame)
            if size > _BATCH_BYTES:
                self.tell(sender, m.Fetched(tuple(batch)))
                batch, size = [], 0
        if batch:
            self.tell(sender, m.Fetched(tuple(batch)))

    def _fetched(self, fetched: m.Fetched) -> None:
        for item in fetched.items:
            self.spread(item, self.now)
            for site in self.sites.values():
                site.feed(item, self.now)


# Messages to this process.
_HERE: dict[type[Message], Callable[[Mesh, str, Any], object]] = {
    m.Who: lambda mesh, sender, who: mesh._who(who),
    m.Found: lambda mesh, sender, found: mesh._found(found),
    m.Enter: lambda mesh, sender, enter: mesh.cluster.enter(enter, mesh.now),
    m.Views: lambda mesh, sender, views: mesh.cluster.views(views.view, sender, mesh.now),
    m.Beat: lambda mesh, sender, beat: mesh._heard_beat(sender, beat),
    m.Election: lambda mesh, sender, vote: mesh.cluster.election(vote, sender, mesh.now),
    m.Wait: lambda mesh, sender, wait: mesh.cluster.wait(wait, mesh.now),
    m.Leave: lambda mesh, sender, leave: mesh.cluster.left(leave.name, mesh.now),
    m.Scout: lambda mesh, sender, scout: mesh._knock(sender, scout),
    m.Reach: lambda mesh, sender, reach: mesh._reach(sender, reach),
    m.Yield: lambda mesh, sender, offer: mesh.cluster.swap(offer, mesh.now),
    m.Interest: lambda mesh, sender, interest: mesh._interest(sender, interest),
    m.AskInterest: lambda mesh, sender, ask: mesh.tell(sender, mesh._subscriptions.all),
    m.Ready: lambda mesh, sender, ready: mesh._is_ready(ready),
    m.Known: lambda mesh, sender, known: mesh._hear_of(sender, known),
    m.Offers: lambda mesh, sender, offers: mesh._decisions.hear(offers, mesh.now),
    m.Publish: lambda mesh, sender, publish: mesh._publish(publish),
    m.Cast: lambda mesh, sender, cast: mesh.spread(cast.item, mesh.now),
    m.Fetch: lambda mesh, sender, fetch: mesh._fetch(sender, fetch),
    m.Fetched: lambda mesh, sender, fetched: mesh._fetched(fetched),
}
assert {*AT_SITE, *_HERE} == {*m.MESSAGES}, "every message has a handler"
