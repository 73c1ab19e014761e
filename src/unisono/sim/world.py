"""The virtual-time driver: one queue of things to do, ordered by time and by who asked first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Protocol

from unisono.core.effects import (
    RANK_STORE,
    Append,
    CancelTimer,
    Deliver,
    Done,
    Effect,
    Fail,
    Rebase,
    Record,
    SetTimer,
    Store,
    Subscribe,
    Transmit,
    Trouble,
    Unsubscribe,
)
from unisono.core.entropy import stream
from unisono.core.events import Delivery
from unisono.core.node import CLOSE, Node
from unisono.core.predicate import Attributes
from unisono.core.stack import TimerKey
from unisono.sim.channels import Links, Wan
from unisono.sim.losses import Losses
from unisono.sim.service import At, Reach, Service, TreeService
from unisono.sim.weather import Weather
from unisono.trace.memory import Recorder

_SYNC_US = 5000  # what a sync takes, on average


class Observer(Protocol):
    """Watches a run while it happens: the online checkers."""

    def published(self, node: str, event_id: str, topic: str, seq: int, now: int) -> None: ...

    def delivered(self, node: str, delivery: Delivery) -> None: ...


class LogDisk:
    """A log on the disk of one node. What waits is not synced: a crash may lose it."""

    def __init__(self) -> None:
        self.base = b""
        self.records: list[bytes] = []
        self.waiting: list[Append | Rebase] = []
        self.syncing = False

    def sync(self, count: int) -> None:
        for effect in self.waiting[:count]:
            if isinstance(effect, Rebase):
                self.base = effect.base
            else:
                self.records.append(effect.record)
        del self.waiting[:count]


class World:
    """Runs nodes over a simulated event service. A pure function of nodes, wan and seed."""

    def __init__(
        self,
        names: Sequence[str],
        wan: Wan | Links,
        seed: int,
        recorder: Recorder,
        observer: Observer,
        weather: Weather | None = None,
        only_messages: bool = False,
        losses: Losses | None = None,
        service: Callable[[At, Reach], Service] | None = None,
    ) -> None:
        self.now = 0
        self.nodes: dict[str, Node] = {}
        self.left: list[Node] = []  # those that are gone
        self.pending: dict[str, int] = {}  # tickets not yet done -> when they began
        self.errors: list[tuple[str, str, str]] = []  # node, ticket, error
        self.acknowledged: set[str] = set()  # tickets done without error, events among them
        self._recorder = recorder
        self._observer = observer
        self._queue: list[tuple[int, int, Callable[[int], None]]] = []
        self._tie = 0
        self._timers: dict[tuple[Node, TimerKey], int] = {}
        self.disks: dict[str, dict[str, bytes]] = {}  # of nodes that have one
        self.logs: dict[str, dict[str, LogDisk]] = {}  # likewise, by the log's name
        self._disk_rng = stream(seed, "disks")
        links = wan if isinstance(wan, Links) else Links(wan, seed, stream(seed, "delays"))
        self.weather = weather or Weather()
        self._paused: dict[str, int] = {}  # node -> until when
        self._torn: dict[str, float] = {}  # nodes that crash in the middle of what they do next
        self._service: Service = (
            service(self.at, self._reach)
            if service is not None
            else TreeService(
                names, links, seed, self.at, self._reach, self.weather, only_messages, losses
            )
        )

    # Time.

    def at(self, when: int, action: Callable[[int], None]) -> None:
        """Do something later (or now, after what was asked before)."""
        self._tie += 1
        heapq.heappush(self._queue, (max(when, self.now), self._tie, action))

    def run(self, until_us: int | None = None, stop: Callable[[], bool] | None = None) -> None:
        """Go on until nothing is left to do, the time is reached, or `stop` says so."""
        queue = self._queue
        while queue:
            if stop is not None and stop():
                return
            if until_us is not None and queue[0][0] > until_us:
                self.now = until_us
                return
            when, _, action = heapq.heappop(queue)
            self.now = when
            action(when)

    # Nodes.

    def add(self, node: Node) -> None:
        self.nodes[node.id] = node
        self.pending[f"{node.id}:join"] = self.now
        self._carry(node, node.start(self._local(node.id)))

    def remove(self, node_id: str) -> None:
        """A node has left; what still arrives for it goes nowhere."""
        node = self.nodes.pop(node_id, None)
        if node is not None:
            self.left.append(node)
        self._let_go_of_disks(node_id)

    def publish(
        self, node_id: str, topic: str, payload: bytes, attributes: Attributes | None = None
    ) -> str:
        node = self.nodes[node_id]
        event_id, effects = node.publish(topic, payload, self._local(node_id), attributes)
        self.pending[f"{node_id}:{event_id}"] = self.now
        self._observer.published(
            node_id, event_id, topic, int(event_id.rpartition("-")[2]), self.now
        )
        self._carry(node, effects)
        return event_id

    def subscribe(
        self, node_id: str, topics: Sequence[str], ticket: str, where: str | None = None
    ) -> None:
        node = self.nodes[node_id]
        effects = node.subscribe(topics, ticket, self._local(node_id), where)
        self.pending[f"{node_id}:{ticket}"] = self.now
        self._carry(node, effects)

    def unsubscribe(self, node_id: str, topics: Sequence[str], ticket: str) -> None:
        node = self.nodes[node_id]
        effects = node.unsubscribe(topics, ticket, self._local(node_id))
        self.pending[f"{node_id}:{ticket}"] = self.now
        self._carry(node, effects)

    def close(self, node_id: str) -> None:
        node = self.nodes[node_id]
        self.pending[f"{node_id}:close"] = self.now
        self._carry(node, node.close(self._local(node_id)))

    # What happens to nodes.

    def crash(self, node_id: str) -> None:
        """The node stops at once, without a word. Its disk, if it has one, stays."""
        node = self.nodes.pop(node_id)
        self.left.append(node)
        self._let_go_of_disks(node_id)
        self._service.forget(node_id)
        self._paused.pop(node_id, None)
        self._torn.pop(node_id, None)
        for key in [key for key in self._timers if key[0] is node]:
            del self._timers[key]
        mine = f"{node_id}:"
        for ticket in [ticket for ticket in self.pending if ticket.startswith(mine)]:
            del self.pending[ticket]

    def _let_go_of_disks(self, node_id: str) -> None:
        """Some of what is not synced is lost."""
        for disk in self.logs.get(node_id, {}).values():
            disk.sync(self._disk_rng.randint(0, len(disk.waiting)))
            disk.waiting.clear()
            disk.syncing = False

    def tear(self, node_id: str, share: float) -> None:
        """The node crashes in the middle of what it does next; unsynced writes are lost."""
        self._torn[node_id] = share

    def pause(self, node_id: str, until_us: int) -> None:
        """The node does nothing until then; what arrives waits."""
        self._paused[node_id] = until_us

    def unpause(self) -> None:
        """Every paused node goes on; what waits for it comes at the time that was set."""
        self._paused.clear()

    def _local(self, node_id: str) -> int:
        return self.weather.local(node_id, self.now)

    # Effects.

    def _reach(self, node_id: str, topic: str, frame: bytes, now: int) -> None:
        node = self.nodes.get(node_id)
        if node is None:
            return
        if self._paused.get(node_id, 0) > now:
            self.at(self._paused[node_id], lambda when: self._reach(node_id, topic, frame, when))
            return
        self._carry(node, node.frame(topic, frame, self._local(node_id)))

    def _carry(self, node: Node, effects: Sequence[Effect]) -> None:
        if node.id in self._torn and effects:
            effects = self._tear(node.id, effects)
        for effect in effects:
            if isinstance(effect, Transmit):
                self._service.publish(node.id, effect.topic, effect.frame, self.now)
                if effect.acknowledges is not None:
                    self._done(node, Done(effect.acknowledges))
            elif isinstance(effect, Record):
                self._recorder.record(effect.table, effect.row)
            elif isinstance(effect, Deliver):
                self._observer.delivered(node.id, effect.delivery)
            elif isinstance(effect, SetTimer):
                self._set_timer(node, effect)
            elif isinstance(effect, CancelTimer):
                self._timers.pop((node, effect.key), None)
            elif isinstance(effect, Store):
                self._store(node.id, effect)
            elif isinstance(effect, Append | Rebase):
                self._append(node, effect)
            elif isinstance(effect, Subscribe):
                for topic in effect.topics:
                    self._service.subscribe(node.id, topic)
                if effect.ticket is not None:
                    self._carry(node, node.effective(effect.ticket, self._local(node.id)))
            elif isinstance(effect, Unsubscribe):
                for topic in effect.topics:
                    self._service.unsubscribe(node.id, topic)
                if effect.ticket is not None:
                    self._carry(node, node.effective(effect.ticket, self._local(node.id)))
            elif isinstance(effect, Done):
                self._done(node, effect)
            elif isinstance(effect, Fail):
                self.errors.append((node.id, "fail", effect.error))
            else:
                assert isinstance(effect, Trouble), effect  # its row in the trace is enough here

    def _tear(self, node_id: str, effects: Sequence[Effect]) -> list[Effect]:
        """The first of the effects; writes that nothing of higher rank followed are not synced."""
        done = list(effects[: int(self._torn.pop(node_id) * (len(effects) + 1))])
        if not any(effect.rank > RANK_STORE for effect in done):
            done = [effect for effect in done if not isinstance(effect, Store)]
        self.at(self.now, lambda now: self.crash(node_id) if node_id in self.nodes else None)
        return done

    def _store(self, node_id: str, effect: Store) -> None:
        disk = self.disks.get(node_id)
        if disk is None:
            return
        if effect.value is None:
            disk.pop(effect.key, None)
        else:
            disk[effect.key] = effect.value

    def _append(self, node: Node, effect: Append | Rebase) -> None:
        disk = self.logs.setdefault(node.id, {}).setdefault(effect.log, LogDisk())
        disk.waiting.append(effect)
        self._sync(node, effect.log, disk)

    def _sync(self, node: Node, log: str, disk: LogDisk) -> None:
        """One sync at a time, of all that waits."""
        if disk.syncing or not disk.waiting:
            return
        disk.syncing, count = True, len(disk.waiting)

        def synced(now: int) -> None:
            if self.nodes.get(node.id) is not node:
                return
            disk.sync(count)
            disk.syncing = False
            self._sync(node, log, disk)
            self._carry(node, node.synced(log, count, self._local(node.id)))

        self.at(self.now + 1 + round(self._disk_rng.expovariate(1 / _SYNC_US)), synced)

    def _done(self, node: Node, effect: Done) -> None:
        self.pending.pop(f"{node.id}:{effect.ticket}", None)
        if effect.ticket == CLOSE:
            # The rest of this batch still goes out; what arrives later goes nowhere.
            self.at(self.now, lambda now: self.remove(node.id))
        if effect.error is None:
            self.acknowledged.add(effect.ticket)
        else:
            self.errors.append((node.id, effect.ticket, effect.error))

    def _set_timer(self, node: Node, effect: SetTimer) -> None:
        self._timers[node, effect.key] = effect.at_us
        wait = effect.at_us - self._local(node.id)
        self.at(self.now + wait, lambda now: self._fire(node, effect.key, effect.at_us))

    def _fire(self, node: Node, key: TimerKey, at_us: int) -> None:
        if self._timers.get((node, key)) != at_us:
            return  # cancelled or replaced
        if self._paused.get(node.id, 0) > self.now:
            self.at(self._paused[node.id], lambda now: self._fire(node, key, at_us))
            return
        del self._timers[node, key]
        if self.nodes.get(node.id) is not node:  # it has left; another may have its name now
            layer = node.frame_layer_of(key)
            if layer is None or layer.talks:
                return
            # What a fault holds back is already on its way; but the node does not speak any more.
        self._carry(node, node.timer(key, self._local(node.id)))
