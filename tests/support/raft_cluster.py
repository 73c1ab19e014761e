"""Raft alone, under virtual time: voters, a network and disks with faults, and the paper's five
properties checked after every step.

The application keeps a list: what was proposed, in order. A base is that list, so a base and the
entries above it must always come to what was committed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from unisono.core.effects import CancelTimer, Effect, Send, SetTimer, Store
from unisono.core.entropy import stream
from unisono.core.machine import Outbox, Timer
from unisono.core.observations import Observed
from unisono.raft.keep import STORE_BALLOT, Ballot, Keep, KeepBase, Record, recovered
from unisono.raft.log import Base
from unisono.raft.messages import Configuration, Entry, Kind, RaftMessage
from unisono.raft.raft import Raft

LOG = "log"
PERIOD_US = 1_000_000
_ENCODER = msgspec.msgpack.Encoder()
_BALLOT = msgspec.msgpack.Decoder(Ballot)
_RECORD = msgspec.msgpack.Decoder(Record)
_STATE = msgspec.msgpack.Decoder(list[bytes])


class Broken(AssertionError):
    """A property that does not hold."""


class Faults(NamedTuple):
    """How bad things are. Each seed draws its own within these."""

    loss: float = 0.0
    twice: float = 0.0
    late: float = 0.0  # share of messages that take up to ten times as long
    delay_us: int = 20_000
    sync_us: int = 20_000
    crashes: float = 0.0  # a second, in the whole cluster
    cuts: float = 0.0  # a second: a process that hears nobody, is heard by nobody, or both
    changes: float = 0.0  # a second: another process votes instead
    transfers: float = 0.0
    forgets: float = 0.0  # a second and voter
    skew: float = 0.0  # clocks run faster or slower by up to this


NONE = Faults()
ALL = Faults(
    loss=0.1, twice=0.1, late=0.1, crashes=0.3, cuts=0.3, changes=0.2, transfers=0.1, forgets=0.5,
    skew=0.2,
)  # fmt: skip


class Disk:
    """What a process has written; the last writes may not be synced."""

    def __init__(self) -> None:
        self.ballot: bytes | None = None
        self.base = b""
        self.records: list[bytes] = []
        self.waiting: list[Keep | KeepBase] = []  # not synced

    def write(self, effect: Keep | KeepBase) -> None:
        if isinstance(effect, KeepBase):
            self.base = _ENCODER.encode(effect.base)
            return
        record = Record(effect.first, effect.entries, effect.committed)
        self.records.append(_ENCODER.encode(record))

    def sync(self, count: int) -> None:
        for effect in self.waiting[:count]:
            self.write(effect)
        del self.waiting[:count]


class Process:
    """One process: its voter, and the application's list."""

    def __init__(self, name: str, raft: Raft, out: Outbox, disk: Disk | None) -> None:
        self.name = name
        self.raft = raft
        self.out = out
        self.disk = disk
        self.timers: dict[Timer, int] = {}
        self.list: list[bytes] = []
        self.applied = 0
        self.kept: list[bytes] = []  # what the base says
        self.load()

    def load(self) -> None:
        base = self.raft.log.base
        self.kept = _STATE.decode(base.state) if base.state else []
        self.list, self.applied = list(self.kept), base.index


class Cluster:
    """Processes of one log. `run` goes on until a time; every step is checked."""

    def __init__(
        self, seed: int, voters: int, spares: int = 0, faults: Faults = NONE, disks: bool = True
    ) -> None:
        sizes = stream(seed, "sizes")
        self.most_entries = sizes.choice((1, 2, 1024))
        self.most_bytes = sizes.choice((64, 1 << 16))
        self.now = 0
        self.rng = stream(seed, "cluster")
        self.seed = seed
        self.disks = disks
        self.faults = self._drawn(faults)
        self.names = [f"p{n}" for n in range(voters + spares)]
        self.founders = tuple(self.names[:voters])
        self.processes: dict[str, Process] = {}
        self.down: dict[str, Disk] = {}
        self.deaf: set[str] = set()
        self.mute: set[str] = set()
        self.cut: set[tuple[str, str]] = set()  # from whom to whom nothing comes
        self.speed: dict[str, float] = {}
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.ties = 0
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.committed: list[Entry] = []  # by any process
        self.proposed = 0
        self.acknowledged: set[bytes] = set()
        self.promised: dict[str, int] = {}  # what a voter has told that it has, in its term
        self.sent: Counter[str] = Counter()
        self.calm = False
        self._lives = 0
        for name in self.names:
            self._begin(name, Disk() if disks else None)

    def _drawn(self, faults: Faults) -> Faults:
        """Most of the faults, each more or less often."""
        shares = {
            name: value * self.rng.choice((0.0, 0.3, 1.0, 2.0))
            for name, value in faults._asdict().items()
            if value and name not in ("delay_us", "sync_us")
        }
        return faults._replace(**shares)

    # Time.

    def at(self, wait_us: float, action: Callable[[], None]) -> None:
        self.ties += 1
        heapq.heappush(self.queue, (self.now + max(0, round(wait_us)), self.ties, action))

    def run(self, seconds: float) -> None:
        end = self.now + round(seconds * 1e6)
        while self.queue and self.queue[0][0] <= end:
            self.now, _, action = heapq.heappop(self.queue)
            action()
        self.now = end

    def local(self, name: str) -> int:
        return round(self.now * self.speed.get(name, 1.0))

    # Processes.

    def _begin(self, name: str, disk: Disk | None) -> None:
        out = Outbox()
        base, records = Base(), []
        if name in self.founders:
            base = Base(configuration=Configuration(self.founders))
        ballot = None
        if disk is not None:
            if disk.base:
                base = msgspec.msgpack.decode(disk.base, type=Base)
            records = [_RECORD.decode(record) for record in disk.records]
            ballot = _BALLOT.decode(disk.ballot) if disk.ballot is not None else None
        log, committed = recovered(base, records)
        self._lives += 1
        raft = Raft(
            out,
            name,
            LOG,
            log,
            stream(self.seed, name, self._lives),
            period_us=PERIOD_US,
            ballot=ballot,
            committed=committed,
            durable=disk is not None,
            most_entries=self.most_entries,
            most_bytes=self.most_bytes,
        )
        skew = self.faults.skew
        self.speed.setdefault(name, 1.0 + self.rng.uniform(-skew, skew))
        process = self.processes[name] = Process(name, raft, out, disk)
        self.at(0, lambda: self.do(process, lambda now: raft.start(now)))

    def crash(self, name: str) -> None:
        """Some of what is not synced is lost."""
        process = self.processes.pop(name)
        if process.disk is not None:
            process.disk.sync(self.rng.randint(0, len(process.disk.waiting)))
            process.disk.waiting.clear()
            self.down[name] = process.disk

    def restart(self, name: str) -> None:
        self._begin(name, self.down.pop(name))

    def do(self, process: Process, action: Callable[[int], object]) -> None:
        """One step of one process, if it lives."""
        if self.processes.get(process.name) is not process:
            return
        action(self.local(process.name))
        for effect in sorted(process.out.take(), key=lambda effect: effect.rank):
            self._carry(process, effect)
        self._apply(process)
        self._check(process)

    def _carry(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, Send):
            assert isinstance(effect.message, RaftMessage)
            self._send(process, effect.to, effect.message)
        elif isinstance(effect, SetTimer):
            self._set(process, effect.key, effect.at_us)
        elif isinstance(effect, CancelTimer):
            process.timers.pop(effect.key, None)
        elif isinstance(effect, Store):
            assert process.disk is not None and effect.key == STORE_BALLOT
            process.disk.ballot = effect.value
        elif isinstance(effect, Keep | KeepBase):
            self._keep(process, effect)
        else:
            assert isinstance(effect, Observed), effect

    def _set(self, process: Process, timer: Timer, at_us: int) -> None:
        process.timers[timer] = at_us
        wait = (at_us - self.local(process.name)) / self.speed[process.name]

        def fire() -> None:
            if process.timers.get(timer) == at_us:
                del process.timers[timer]
                self.do(process, lambda now: process.raft.fire(timer, max(now, at_us)))

        self.at(wait, fire)

    def _keep(self, process: Process, effect: Keep | KeepBase) -> None:
        disk = process.disk
        assert disk is not None
        disk.waiting.append(effect)

        def synced() -> None:
            if self.processes.get(process.name) is process and disk.waiting:
                count = len(disk.waiting)
                disk.sync(count)
                self.do(process, lambda now: process.raft.written(count, now))

        self.at(self.rng.expovariate(1 / self.faults.sync_us), synced)

    def _send(self, process: Process, to: str, message: RaftMessage) -> None:
        self.sent[type(message).__name__] += 1
        faults, sender = self.faults, process.name
        if sender in self.mute or (sender, to) in self.cut or self.rng.random() < faults.loss:
            return
        frame = _ENCODER.encode(message)
        for _ in range(2 if self.rng.random() < faults.twice else 1):
            delay = self.rng.expovariate(1 / faults.delay_us)
            if self.rng.random() < faults.late:
                delay *= self.rng.uniform(1, 100)
            self.at(delay, lambda: self._arrive(to, type(message), frame, sender))

    def _arrive(self, to: str, kind: type[RaftMessage], frame: bytes, sender: str) -> None:
        taker = self.processes.get(to)
        if taker is not None and to not in self.deaf:
            message = msgspec.msgpack.decode(frame, type=kind)
            self.do(taker, lambda now: taker.raft.receive(message, sender, now))

    # The application.

    def propose(self) -> bool:
        """Whoever thinks that it leads takes one more."""
        for process in list(self.processes.values()):
            if process.raft.leads:
                data = b"%d" % self.proposed
                self.proposed += 1
                self.do(process, lambda now, p=process, d=data: p.raft.propose(d, now))  # type: ignore[misc]
                return True
        return False

    def _apply(self, process: Process) -> None:
        raft = process.raft
        if raft.log.base.index > process.applied:
            process.load()
        while process.applied < raft.committed:
            process.applied += 1
            entry = raft.log[process.applied]
            if entry.kind is Kind.DATA:
                process.list.append(entry.data)
            if process.applied == len(self.committed) + 1:
                self.committed.append(entry)
                if raft.leads and entry.kind is Kind.DATA:
                    self.acknowledged.add(entry.data)

    def forget(self, name: str) -> None:
        """Keep fewer entries."""
        process = self.processes[name]
        base, upto = process.raft.log.base.index, process.applied
        if upto <= base:
            return
        index = self.rng.randint(base + 1, upto)
        entries = process.raft.log.between(base + 1, index)
        process.kept += [entry.data for entry in entries if entry.kind is Kind.DATA]
        state = _ENCODER.encode(process.kept)
        self.do(process, lambda now: process.raft.forget(index, state))

    # The properties (figure 3 of the paper), as far as a step can break them.

    def _check(self, process: Process) -> None:
        raft = process.raft
        log = raft.log
        if raft.leads:
            first = self.leaders.setdefault(raft.term, process.name)
            if first != process.name:
                raise Broken(f"election safety: {first} and {process.name} lead term {raft.term}")
            for index in range(log.first, min(len(self.committed), log.last) + 1):
                if log[index] != self.committed[index - 1] and self._newer(raft, index):
                    raise Broken(f"leader completeness: {process.name} has another entry {index}")
            if log.last < len(self.committed) and self._newer(raft, log.last + 1):
                raise Broken(f"leader completeness: {process.name} lacks entry {log.last + 1}")
        if raft.committed > log.last:
            raise Broken(f"{process.name} takes for committed what it does not have")
        for index in range(max(log.first, raft.committed - 3), raft.committed + 1):
            if log[index] != self.committed[index - 1]:
                raise Broken(f"state machine safety: {process.name} differs at {index}")
        data = [entry.data for entry in self.committed[: process.applied] if not entry.kind]
        if process.list[-5:] != data[-5:] or len(process.list) != len(data):
            raise Broken(f"{process.name}: the base and its entries are not all that was committed")

    def _newer(self, raft: Raft, index: int) -> bool:
        """Whether this entry was committed in a term before the leader's."""
        return self.committed[index - 1].term < raft.term

    def check_logs(self) -> None:
        """Log matching: where two logs have an entry of one term, they agree up to it."""
        logs = {name: process.raft.log for name, process in self.processes.items()}
        for a in logs.values():
            for b in logs.values():
                same = False
                for index in range(min(a.last, b.last), max(a.first, b.first) - 1, -1):
                    same = same or a[index].term == b[index].term
                    if same and a[index] != b[index]:
                        raise Broken(f"log matching: entry {index}")

    # What happens.

    def trouble(self, seconds: float) -> None:
        """Faults for so long, and proposals all the time."""
        steps = round(seconds * 10)
        for _ in range(steps):
            for _ in range(self.rng.randint(0, 3)):
                self.propose()
            self._fault(0.1)
            self.run(0.1)
            self.check_logs()

    def _fault(self, share: float) -> None:
        rng, faults = self.rng, self.faults
        if self.processes and rng.random() < faults.crashes * share:
            name = rng.choice(sorted(self.processes))
            if self.disks:
                self.crash(name)
        if self.down and rng.random() < 0.5 * share:
            self.restart(rng.choice(sorted(self.down)))
        if rng.random() < faults.cuts * share:
            name = rng.choice(self.names)
            for group in rng.choice(((self.deaf,), (self.mute,), (self.deaf, self.mute))):
                group.add(name)
        if rng.random() < 0.3 * share:
            self.deaf.clear()
            self.mute.clear()
        for process in list(self.processes.values()):
            if rng.random() < faults.forgets * share:
                self.forget(process.name)
            if process.raft.leads:
                self._lead(process, share)

    def _lead(self, process: Process, share: float) -> None:
        raft, rng = process.raft, self.rng
        if rng.random() < self.faults.transfers * share:
            to = rng.choice(sorted(raft.log.configuration.everyone))
            self.do(process, lambda now: raft.transfer(to, now))
        if rng.random() < self.faults.changes * share:
            count = rng.choice([n for n in (1, 3, 5) if n <= len(self.names)])
            wanted = tuple(sorted(rng.sample(self.names, count)))
            self.do(process, lambda now: raft.teach(set(wanted), now))

            def change(tries: int) -> None:
                def ask(now: int) -> None:
                    if raft.leads and not raft.change_voters(wanted, now) and tries:
                        self.at(200_000, lambda: change(tries - 1))

                self.do(process, ask)

            change(20)

    def heal(self) -> None:
        """All faults end; what is down comes back."""
        self.faults = self.faults._replace(loss=0.0, twice=0.0, late=0.0, skew=0.0)
        self.deaf.clear()
        self.mute.clear()
        self.cut.clear()
        for name in sorted(self.down):
            self.restart(name)

    @property
    def leader(self) -> Process:
        """The one that leads in the newest term."""
        leaders = [process for process in self.processes.values() if process.raft.leads]
        if not leaders:
            raise Broken("liveness: nobody leads")
        return max(leaders, key=lambda process: process.raft.term)

    def settle(self) -> None:
        """Within ten periods there is one leader, all have what is committed, and it goes on."""
        self.heal()
        self.run(30)
        leaders = [p for p in self.processes.values() if p.raft.leads]
        if len(leaders) != 1:
            raise Broken(f"liveness: {len(leaders)} leaders in the end")
        leader = leaders[0].raft
        if not leader.serves:
            raise Broken("liveness: the leader does not know what is committed")
        before = self.proposed
        for _ in range(5):
            self.propose()
            self.run(0.2)
        self.run(3)
        if not leader.leads:
            raise Broken("liveness: the leader changes though all is well")
        wanted = {b"%d" % n for n in range(before, self.proposed)}
        for name in leader.log.configuration.everyone:
            have = self.processes[name]
            if have.raft.committed != len(self.committed) or not wanted <= set(have.list):
                raise Broken(f"liveness: {name} has {have.raft.committed} of {len(self.committed)}")
        data = {entry.data for entry in self.committed}
        if not self.acknowledged <= data:
            raise Broken("durability: something acknowledged is gone")


# Stories: what happens to a cluster, by seed.


def everything(seed: int) -> Cluster:
    """All faults at once, more or less of each."""
    cluster = Cluster(seed, (1, 3, 5, 3)[seed % 4], spares=2, faults=ALL, disks=seed % 5 != 0)
    cluster.run(3)
    cluster.trouble(20)
    cluster.settle()
    return cluster


def short_terms(seed: int) -> Cluster:
    """Leaders fall over soon, with entries that only some have (figure 8 of the paper)."""
    faults = Faults(loss=0.1, twice=0.15, late=0.1, delay_us=40_000)
    cluster = Cluster(seed, (3, 5)[seed % 2], faults=faults)
    rng = cluster.rng
    for _ in range(30):
        for _ in range(200):
            if any(process.raft.leads for process in cluster.processes.values()):
                break
            cluster.run(0.05)
        for _ in range(rng.choice((0, 1, 2, 8))):
            cluster.propose()
        cluster.run(rng.choice((0.0, 0.03, 0.06, 0.12, 0.5)))
        if rng.random() < 0.2:
            cluster.forget(rng.choice(sorted(cluster.processes)))
        leaders = [p.name for p in cluster.processes.values() if p.raft.leads]
        if leaders and rng.random() < 0.8:
            cluster.crash(leaders[-1])
        while len(cluster.processes) <= len(cluster.names) // 2:
            cluster.restart(rng.choice(sorted(cluster.down)))
        if cluster.down and rng.random() < 0.5:
            cluster.restart(rng.choice(sorted(cluster.down)))
        cluster.check_logs()
        share = rng.choice((0.0, 0.2, 0.4))
        pairs = [(a, b) for a in cluster.names for b in cluster.names]
        cluster.cut = {pair for pair in pairs if rng.random() < share}
    cluster.settle()
    return cluster


def cut_off(seed: int) -> Cluster:
    """A voter that hears nobody, or is heard by nobody, for a while: whom a majority hears leads
    on; a leader that does not hear a majority is replaced."""
    cluster = Cluster(seed, (3, 5)[seed % 2])
    cluster.run(5)
    for _ in range(6):
        cluster.propose()
        cluster.run(2)
        leader = cluster.leader
        name = cluster.rng.choice(cluster.names)
        deaf, mute = cluster.rng.choice(((True, True), (True, False), (False, True)))
        cluster.deaf.update([name] if deaf else [])
        cluster.mute.update([name] if mute else [])
        cluster.run(cluster.rng.uniform(10, 20))
        if name == leader.name and cluster.leader is leader:
            raise Broken("liveness: a leader without a majority is not replaced")
        if name != leader.name and cluster.leader is not leader:
            raise Broken("liveness: a leader is replaced that a majority hears")
        before, serving = len(cluster.committed), cluster.leader
        cluster.do(serving, lambda now, p=serving: p.raft.propose(b"x", now))  # type: ignore[misc]
        cluster.run(2)
        if len(cluster.committed) == before:
            raise Broken("liveness: a majority does not go on")
        cluster.deaf.clear()
        cluster.mute.clear()
        cluster.run(5)
        if cluster.leader is not serving:
            raise Broken("liveness: who comes back disturbs the leader")
    cluster.settle()
    return cluster


STORIES: tuple[Callable[[int], Cluster], ...] = (everything, short_terms, cut_off)
