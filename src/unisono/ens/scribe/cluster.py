"""The processes of one domain: who is there, and which of them coordinate.

The first of a view leads: it lets others in, leaves out the silent, and tells everyone the new
view. That is the one that has been there longest, unless one gave its place to another, who
reaches more (`swap`). In each of `trees` slots one candidate is the active coordinator; the next
ones are backups. Who is active keeps its slot as long as it is there, and a backup takes that of
one who is gone. When the leader falls silent, whoever notices asks all before it (bully election,
who comes first is the stronger); if none of them answers, and nobody else hears the leader, it
leads. Two parts of a domain that were cut off from each other are two clusters for a while: the
younger gives in where they meet; if it cannot, it takes a site of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unisono.ens.scribe.messages import (
    Beat,
    Contact,
    Election,
    Enter,
    Leave,
    Member,
    Message,
    View,
    Views,
    Wait,
    Yield,
    born,
)
from unisono.ens.scribe.options import Shape

MEMBERS = 4096  # of one cluster: further ones are not let in

Tell = Callable[[str, Message], None]


class Cluster:
    """One process's part in its cluster."""

    def __init__(self, domain: str, me: Member, shape: Shape, tell: Tell) -> None:
        self.domain = domain
        self.me = me
        self.shape = shape
        self._tell = tell
        self.view: View | None = None
        self.candidates: list[Member] = []  # for coordinator, the longest there first
        self._active: list[Member] = []  # by slot
        self._members: dict[str, Member] = {}  # of the view, by name
        self._heard: dict[str, int] = {}  # name -> when, by me
        self._vouched: dict[str, int] = {}  # or by another coordinator
        self._voting_since: int | None = None
        self._told_to_wait: int | None = None

    @property
    def _quiet_us(self) -> int:
        return self.shape.silence * self.shape.beat_us

    # Who is what.

    @property
    def joined(self) -> bool:
        return self.view is not None

    @property
    def leader(self) -> Member:
        return self.candidates[0]

    @property
    def leads(self) -> bool:
        return self.view is not None and self.leader.name == self.me.name

    def active(self, slot: int) -> Member:
        """The coordinator of a slot; with too few candidates one has several."""
        return self._active[slot % len(self._active)]

    @property
    def actives(self) -> list[Member]:
        return list(dict.fromkeys(self._active))

    @property
    def _passive(self) -> list[Member]:
        return [member for member in self.candidates if member not in self._active]

    def backups(self, slot: int) -> list[Member]:
        return self._passive[slot :: self.shape.trees][: self.shape.backups]

    @property
    def coordinators(self) -> list[Member]:
        """The leader, the active ones and all backups."""
        backups = self._passive[: self.shape.trees * self.shape.backups]
        return list(dict.fromkeys((*self.candidates[:1], *self._active, *backups)))

    @property
    def slots(self) -> list[int]:
        """Those that this process is active in."""
        if self.view is None:
            return []
        return [s for s in range(self.shape.trees) if self.active(s).name == self.me.name]

    def contact(self, slot: int) -> Contact:
        """How other sites reach the coordinator of this slot."""
        assert self.view is not None
        first = self.active(slot)
        order = [first, *self.backups(slot), *self.actives]
        addresses = tuple(dict.fromkeys(member.address for member in order))
        return Contact(self.view.site, slot, self.view.number, addresses)

    def member(self, name: str) -> Member | None:
        return self._members.get(name)

    def lives(self, name: str, now: int) -> bool:
        """Whether it was heard lately, here or by another coordinator."""
        return self.hears(name, now) or now - self._vouched.get(name, 0) <= self._quiet_us

    def hears(self, name: str, now: int) -> bool:
        """Whether it was heard lately by this process itself."""
        return now - self._heard.get(name, 0) <= self._quiet_us

    # Life.

    def found(self, now: int) -> None:
        """Be a cluster of one."""
        self._become(View(self.domain, now // 1000 << 20, (self.me,)), now)

    def rename(self, site: str, now: int) -> None:
        """The same cluster at another place in the rings."""
        assert self.view is not None
        self.view = View(site, self.view.number, self.view.members)
        self._announce(self.view.members, now)

    def enter(self, enter: Enter, now: int) -> None:
        """Somebody wants to be let in."""
        view, member = self.view, enter.member
        if view is None or enter.domain != self.domain:
            return
        mine = member.name == self.me.name or member.address == self.me.address
        if mine and member != self.me:
            return
        if member in view.members and (self.leads or self.me in self._active):
            # It has not heard: perhaps the leader does not reach it, as this process does.
            self._tell(member.address, Views(view))
            return
        # Who was at this address before is gone, whether or not somebody has noticed.
        others = [
            m
            for m in view.members
            if m == member or (m.address != member.address and m.name != member.name)
        ]
        first = next((m for m in others if m.candidate), others[0] if others else self.me)
        if first != self.me:
            self._tell(first.address, enter)
        elif len(others) >= MEMBERS:
            self._tell(member.address, Views(view))
        else:
            rest = (m for m in others if m != self.me)
            self._announce((self.me, *rest, member), now)

    def leave(self) -> None:
        """Say so; whoever leads next hears it, too."""
        if self.view is not None:
            for member in self.coordinators:
                if member.name != self.me.name:
                    self._tell(member.address, Leave(self.me.name))

    def left(self, name: str, now: int) -> None:
        view = self.view
        if view is None or self.member(name) is None or name == self.me.name:
            return
        gone = self.leader.name == name
        self._heard.pop(name, None)
        self._vouched.pop(name, None)
        next_in_line = gone and self.candidates[1:2] == [self.me]
        if self.leads or next_in_line:
            rest = (m for m in view.members if m.name not in (name, self.me.name))
            self._announce((self.me, *rest), now)

    def give_way(self, slot: int, to: str) -> None:
        """This coordinator's place is for another candidate, who reaches more of the others. It
        tells the leader, too, which this process may not reach."""
        new = self._members.get(to)
        if new is not None:
            for address in dict.fromkeys((self.leader.address, new.address)):
                self._tell(address, Yield(slot, self.me.name, to))

    def swap(self, offer: Yield, now: int) -> None:
        """A coordinator gives its place away."""
        view, to = self.view, offer.to
        new = next((m for m in self.candidates if m.name == to), None)
        if view is None or new is None:
            return
        if not self.leads:
            if new == self.me:
                self._tell(self.leader.address, offer)
            return
        old = self.active(offer.slot)
        if self.lives(to, now) and old.name == offer.name and new not in self._active:
            places = {old: new, new: old}
            self._active = [places.get(m, m) for m in self._active]
            self._announce(tuple(places.get(m, m) for m in view.members), now)

    def _placed(self, members: Sequence[Member], now: int) -> list[Member]:
        """The coordinators of a new view, by slot."""
        candidates = [m for m in members if m.candidate] or list(members)
        heard = [m for m in candidates if m.name not in self._heard or self.lives(m.name, now)]
        placed: list[Member | None] = []
        for active in self._active:
            placed.append(active if active in candidates and active not in placed else None)
        for slot in range(len(placed)):
            if placed[slot] is None:
                backups = (m for m in self.backups(slot) if m in heard)
                free = (m for m in (*backups, *heard) if m not in placed)
                placed[slot] = next(free, None) or min(heard or candidates, key=placed.count)
        return [member for member in placed if member is not None]

    def _announce(self, members: tuple[Member, ...], now: int) -> None:
        assert self.view is not None
        before = self.view.members
        active = tuple(members.index(member) for member in self._placed(members, now))
        self._become(View(self.view.site, self.view.number + 1, members, active), now)
        for member in {m.name: m for m in (*before, *members)}.values():
            if member.name != self.me.name:
                self._tell(member.address, Views(self.view))

    def _become(self, view: View, now: int) -> None:
        led, leader = self.leads, self.leader if self.joined else None
        self.view = view
        self._members = {member.name: member for member in view.members}
        self.candidates = [m for m in view.members if m.candidate] or list(view.members)
        told = dict(enumerate(view.members[number] for number in view.active))
        few = self.candidates[: self.shape.trees]
        self._active = [told.get(s, few[s % len(few)]) for s in range(self.shape.trees)]
        self._voting_since = self._told_to_wait = None
        # Not all have spoken to this process before: if it leads now, they get time to.
        before = {} if self.leads and not led else self._heard
        self._heard = {name: before.get(name, now) for name in self._members}
        if self.leader != leader:  # perhaps it has spoken to others so far
            self._heard[self.leader.name] = now
        self._vouched = {n: at for n, at in self._vouched.items() if n in self._heard}

    # What is heard.

    def hear(self, name: str, now: int) -> None:
        if name in self._heard:
            self._heard[name] = now

    def beat(self, beat: Beat, now: int) -> None:
        """A sign of life of a process of this domain."""
        view = self.view
        if view is None:
            return
        self.hear(beat.name, now)
        if beat.site != view.site:
            return
        for name in beat.heard:
            if name in self._heard:
                self._vouched[name] = now
        sender = self.member(beat.name)
        same = beat.number == view.number and beat.leader == self.leader.name
        if sender is None or same:
            return
        behind = (beat.number, self.leader.name) < (view.number, beat.leader)  # as in `_newer`
        if self.leads or (born(beat.number) == born(view.number) and behind):
            self._tell(sender.address, Views(view))

    def views(self, view: View, sender: str, now: int) -> None:
        """Somebody's idea of the cluster."""
        mine = self.view
        if not self._sound(view):
            return
        if mine is not None and not self._newer(view, mine) and not self.cut_off(now):
            if self.leads and view.members[0].name != self.me.name:
                self._tell(view.members[0].address, Views(mine))
            return
        led = self.leads
        if self.me in view.members:
            self._become(view, now)
        else:
            for address in dict.fromkeys((view.members[0].address, sender)):
                # who told us may reach whom we do not
                self._tell(address, Enter(self.domain, self.me))
        if led and mine is not None:  # whoever followed me hears whom to follow now
            for member in mine.members:
                if member.name != self.me.name:
                    self._tell(member.address, Views(view))

    def _sound(self, view: View) -> bool:
        """Whether it is of this domain, and its members can be told apart and are named."""
        names = {member.name for member in view.members}
        addresses = {member.address for member in view.members}
        count = len(view.members)
        told_apart = len(names) == len(addresses) == count
        named = all(number < count for number in view.active)
        return told_apart and named and view.site.partition("~")[0] == self.domain

    @staticmethod
    def _newer(view: View, mine: View) -> bool:
        if view.site != mine.site and view.members[0] != mine.members[0]:
            # a part that was cut off gives in
            return (len(view.site), view.site) < (len(mine.site), mine.site)
        if born(view.number) != born(mine.number):
            return born(view.number) < born(mine.number)
        theirs, ours = view.members[0].name, mine.members[0].name
        return (view.number, ours) > (mine.number, theirs)

    def election(self, message: Election, sender: str, now: int) -> None:
        """Somebody hears the leader no more."""
        view = self.view
        if view is None or message.site != view.site:
            return
        self.hear(message.name, now)
        if self.leads or self.member(message.name) is None:
            self._tell(sender, Views(view))  # it may have been left out, and is to enter again
        elif self.hears(self.leader.name, now):
            self._tell(sender, Wait(view.site, view.number))
        elif any(member.name == message.name for member in self._after_me()):
            self._tell(sender, Wait(view.site, view.number))
            self._vote(now)

    def wait(self, message: Wait, now: int) -> None:
        if self.view is not None and message.site == self.view.site:
            self._told_to_wait = now

    def tick(self, now: int) -> None:
        """Once a beat: who is silent?"""
        view = self.view
        if view is None:
            return
        self._heard[self.me.name] = now
        if self.leads:
            alive = tuple(m for m in view.members if self.lives(m.name, now))
            if len(alive) < len(view.members) or self._placed(alive, now) != self._active:
                self._announce(alive, now)
            return
        if self.hears(self.leader.name, now):
            self._voting_since = self._told_to_wait = None
        elif self.me in self.candidates:
            self._vote(now)

    def _vote(self, now: int) -> None:
        assert self.view is not None
        if self._told_to_wait is not None and now - self._told_to_wait <= self._quiet_us:
            return
        if self._voting_since is None or self._told_to_wait is not None:
            self._voting_since, self._told_to_wait = now, None
            for member in self.candidates:
                if member != self.me:
                    vote = Election(self.view.site, self.view.number, self.me.name)
                    self._tell(member.address, vote)
        elif now - self._voting_since >= 2 * self.shape.beat_us:
            silent = {member.name for member in self._before_me()}
            # None of them answered, and nobody else hears the leader: this process leads.
            rest = [m for m in self.view.members if m.name not in silent and m != self.me]
            self._announce((self.me, *rest), now)

    def _before_me(self) -> list[Member]:
        candidates = self.candidates
        return candidates[: candidates.index(self.me)]

    def _after_me(self) -> list[Member]:
        candidates = self.candidates
        return candidates[candidates.index(self.me) :] if self.me in candidates else []

    def cut_off(self, now: int) -> bool:
        """Whether no active coordinator has been heard for long, though the cluster goes on."""
        return not self.leads and all(
            now - self._heard.get(member.name, 0) > 3 * self._quiet_us for member in self.actives
        )

    def part(self, now: int) -> None:
        """Be a cluster of one, at a place of its own in the rings, until there is a way back."""
        assert self.view is not None
        self._become(View(f"{self.domain}~{self.me.name}", self.view.number + 1, (self.me,)), now)
