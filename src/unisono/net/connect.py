"""`connect`: from an address and the wished guarantees to a running bus."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from random import Random
from socket import gethostname
from types import TracebackType
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from unisono.core.layer import FrameLayer, Layer
from unisono.core.limits import Limits
from unisono.core.node import Node
from unisono.ens.base import EventService
from unisono.errors import BadInput, BusClosed, Unsupported
from unisono.net.bus import Bus
from unisono.net.capacity import free_processor
from unisono.net.disk import Disk
from unisono.net.runtime import Runtime
from unisono.net.services import service_of
from unisono.qos.choice import STORE_KEY
from unisono.qos.content import Content
from unisono.qos.deadline import PROFILES, Deadline, Goal
from unisono.qos.fifo.options import Fifo
from unisono.qos.membership import Membership
from unisono.qos.reliable.options import Reliability
from unisono.qos.total_order.adapt import Adapt
from unisono.qos.total_order.by_log.domain import Domain, LogOptions
from unisono.qos.total_order.by_log.layer import LogOrder, load
from unisono.qos.total_order.by_log.messages import Hello, unknown_log
from unisono.qos.total_order.by_log.voter import Retention
from unisono.qos.total_order.layer import TotalOrder
from unisono.qos.total_order.options import Total
from unisono.trace.files import ParquetRecorder
from unisono.trace.memory import NullRecorder, Recorder
from unisono.trace.run import write_run
from unisono.version import unisono_version

SECOND = 1_000_000
SUPPORTED = ("none", "fifo", "total")
PLANNED = ("causal", "real-time")
_BY_NAME: dict[Any, Any] = {f"total:{by}": Total(by=by) for by in ("log", "bus", "stamps")}
_ENVELOPE_BYTES = 1 << 16  # room for the stamp and the header in a frame
_FLUSH_TRACE_S = 5.0


_NO_NULL = r"^[^\x00]*\Z"  # what the system takes for a path
Seconds = Annotated[float, Meta(gt=0, le=1e6)]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The wished guarantees, checked. See `connect` for what each means."""

    order: dict[str, str]  # pattern -> guarantee, first match counts
    totals: dict[str, Total] = {}  # how, of the patterns that are totally ordered
    delivery: dict[str, Literal["reliable", "none"]] = {}  # likewise
    deadline_ms: dict[str, Annotated[float, Meta(gt=0, le=1e9)]] = {}  # likewise
    profile: Literal["D-1", "D-2", "D-3"] | None = None
    reliability: Reliability | None = None
    fifo: Fifo | None = None
    buffer: Annotated[int, Meta(ge=0)] | None = None
    hold_s: Seconds = 10.0
    stamps: Literal["exact", "paper"] = "exact"
    manage: bool = True
    trace: Annotated[str, Meta(pattern=_NO_NULL)] | None = None
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}$")] | None = None
    discovery_s: Seconds | None = None
    patience_s: Seconds = 10.0
    replicas: Annotated[int, Meta(ge=1, le=9)] | None = None
    disk: Annotated[str, Meta(pattern=_NO_NULL)] | None = None
    adapt: bool | Literal["resources"] = True
    period_s: Seconds = 0.5
    found: bool = True

    @property
    def ordered(self) -> bool:
        return "total" in self.order.values()

    @property
    def recovering(self) -> bool:
        return "reliable" in self.delivery.values()

    def covers(self, topic: str) -> bool:
        """Whether the topic is totally ordered by stamps."""
        pattern = _pattern(self.order, topic)
        return pattern in self.totals and self.totals[pattern].by == "stamps"

    def domain(self, topic: str) -> str | None:
        """The domain of a topic that is totally ordered by a log."""
        pattern = _pattern(self.order, topic)
        total = self.totals.get(pattern) if pattern is not None else None
        return total.domain if total is not None and total.by == "log" else None

    @property
    def domains(self) -> dict[str, Total]:
        """Those by a log."""
        return {total.domain: total for total in self.totals.values() if total.by == "log"}

    @property
    def managed(self) -> bool:
        """Processes of the bus make the order between them."""
        return any(total.by != "bus" for total in self.totals.values())

    @property
    def stamped(self) -> bool:
        return any(total.by == "stamps" for total in self.totals.values())

    def in_fifo(self, topic: str) -> bool:
        """Whether the topic keeps the order of each publisher."""
        return _chosen(self.order, topic) == "fifo"

    def recovers(self, topic: str) -> bool:
        """Whether lost packets of the topic are recovered."""
        return _chosen(self.delivery, topic) == "reliable"

    def goals(self, topic: str) -> tuple[Goal, ...]:
        """What is asked of the topic's latency."""
        if self.profile is not None:
            return PROFILES[self.profile]
        deadline = _chosen(self.deadline_ms, topic)
        return () if deadline is None else (Goal(deadline, 1.0),)


T = TypeVar("T")


def _pattern(patterns: Mapping[str, T], topic: str) -> str | None:
    """The first pattern that fits."""
    return next((pattern for pattern in patterns if fnmatchcase(topic, pattern)), None)


def _chosen(patterns: Mapping[str, T], topic: str) -> T | None:
    """What the first pattern that fits says."""
    pattern = _pattern(patterns, topic)
    return None if pattern is None else patterns[pattern]


def connect(
    url: str,
    *,
    order: str | Total | Mapping[str, str | Total] = "total",
    buffer: int | None = None,
    hold_s: float | None = None,
    stamps: str = "exact",
    delivery: str | Mapping[str, str] = "none",
    deadline_ms: float | Mapping[str, float] | None = None,
    profile: str | None = None,
    reliability: Reliability | None = None,
    fifo: Fifo | None = None,
    manage: bool = True,
    trace: str | os.PathLike[str] | None = None,
    name: str | None = None,
    discovery_s: float | None = None,
    patience_s: float = 10.0,
    replicas: int | None = None,
    disk: str | os.PathLike[str] | None = None,
    adapt: bool | str = True,
    period_s: float = 0.5,
    found: bool = True,
    limits: Limits | None = None,
) -> Connection:
    """Connect to a bus: `async with unisono.connect("nats://127.0.0.1:4222", order="total") as bus:
    ...`

    url         memory://name?delay_ms=&jitter_ms=, nats://host:port/space, or of a mesh
                mesh://address,address?key=FILE (docs/mesh.md)
    order       "total", "fifo" (of each publisher, over all its topics with this order) or "none"
                for all topics, or a mapping from topic patterns to these, first match first:
                {"orders.*": "total", "*": "none"}; topics without a match are not ordered.
                A unisono.Total says how total order is made, as "total:log", "total:bus" and
                "total:stamps" do.
                All processes of a bus must choose alike for a topic.
    buffer      how many events may wait to be put in order; None: no bound; 0: none, late ones are
    tagged
    hold_s      how long an event waits for a missing one before it goes ahead as gap_skipped (10)
    stamps      "exact", or "paper" for the printed stamps (experiments)
    delivery    "reliable": what the bus loses of events is recovered, by redundancy and from other
                subscribers; "none"; or a mapping from topic patterns as for order
    deadline_ms events notified later than this after their publication are marked late; a number,
                or a mapping from topic patterns
    profile     "D-1", "D-2" or "D-3": deadlines of the Co-Flight system, instead of deadline_ms
    reliability a unisono.Reliability: redundancy, gossip, how long events are kept for others
    fifo        a unisono.Fifo: which share of violations is allowed, how long to hold at most
    manage      host topic managers in this process; at least one process must
    trace       folder to record what the audit needs
    name        this node's name in the trace; a random suffix keeps it unique
    discovery_s how long to listen for others before starting a bus of one's own
    patience_s  how long a publication may wait for its stamp before its receipt says so
    replicas    copies of each topic manager on different processes (3; 1 on memory://); what the
                first process of a bus says holds for all
    disk        folder in which this process keeps its part over a restart
    adapt       let the topic order follow popularity; with "resources", weighed by how idle the
                processor is where a topic is managed
    period_s    how often processes tell each other that they live; silence of four periods counts
                as a crash
    found       start a bus if none is heard of; False: only join one
    """
    if isinstance(order, Mapping) and not order:
        raise BadInput("order is a guarantee, or a mapping from topic patterns to guarantees")
    wished = order if isinstance(order, Mapping) else {"*": order}
    wished = {pattern: _BY_NAME.get(one, one) for pattern, one in wished.items()}
    totals = {
        pattern: one if isinstance(one, Total) else Total()
        for pattern, one in wished.items()
        if isinstance(one, Total) or one == "total"
    }
    options = _options(
        {
            "order": {p: "total" if isinstance(o, Total) else o for p, o in wished.items()},
            "buffer": buffer,
            "hold_s": 10.0 if hold_s is None else hold_s,
            "stamps": stamps,
            "delivery": {"*": delivery} if isinstance(delivery, str) else delivery,
            "deadline_ms": _per_topic(deadline_ms),
            "profile": profile,
            "manage": manage,
            "trace": os.fspath(trace) if isinstance(trace, os.PathLike) else trace,
            "name": name,
            "discovery_s": discovery_s,
            "patience_s": patience_s,
            "replicas": replicas,
            "disk": os.fspath(disk) if isinstance(disk, os.PathLike) else disk,
            "adapt": adapt,
            "period_s": period_s,
            "found": found,
        }
    )
    options = msgspec.structs.replace(options, totals=totals)
    for pattern, guarantee in options.order.items():
        _check_guarantee(pattern, guarantee)
    _check_domains(totals)
    if reliability is not None:
        if not isinstance(reliability, Reliability):
            raise BadInput(
                f"reliability is a unisono.Reliability, not {type(reliability).__name__}"
            )
        if "reliable" not in options.delivery.values():
            raise Unsupported('reliability means nothing without delivery="reliable"; leave it out')
        options = msgspec.structs.replace(options, reliability=reliability)
    if fifo is not None:
        if not isinstance(fifo, Fifo):
            raise BadInput(f"fifo is a unisono.Fifo, not {type(fifo).__name__}")
        if "fifo" not in options.order.values():
            raise Unsupported('fifo means nothing without order="fifo"; leave it out')
        options = msgspec.structs.replace(options, fifo=fifo)
    if profile is not None and deadline_ms is not None:
        raise Unsupported("a profile says what the deadlines are; leave deadline_ms out")
    if not options.stamped and options.ordered:
        useless = ["buffer"] if buffer is not None else []
        useless += ["replicas"] if replicas is not None else []
        useless += ["stamps"] if stamps != "exact" else []
        if useless:
            raise Unsupported(f'{", ".join(useless)}: that is for Total(by="stamps"); leave it out')
    if options.ordered and not options.managed:
        given = {"hold_s": hold_s, "discovery_s": discovery_s, "disk": disk}
        useless = [option for option, value in given.items() if value is not None]
        useless += [] if manage else ["manage"]
        useless += [] if found else ["found"]
        if useless:
            raise Unsupported(
                f"{', '.join(useless)} means nothing where the bus makes the order; leave it out"
            )
    if not options.ordered:
        given = {"buffer": buffer, "hold_s": hold_s, "discovery_s": discovery_s}
        useless = [option for option, value in given.items() if value is not None]
        useless += ["stamps"] if stamps != "exact" else []
        useless += ["manage"] if not manage else []
        useless += ["replicas"] if replicas is not None else []
        useless += ["disk"] if disk is not None else []
        useless += ["found"] if not found else []
        if useless:
            raise Unsupported(
                f'{", ".join(useless)} means nothing without order="total"; leave it out'
            )
    if buffer == 0 and hold_s is not None:
        raise Unsupported("hold_s with buffer=0: nothing is ever held; leave one of them out")
    if limits is not None and not isinstance(limits, Limits):
        raise BadInput(f"limits is a unisono.Limits, not {type(limits).__name__}")
    make = service_of(url, options.patience_s)
    _check_bus_order(options, make)
    return Connection(make, options, limits or Limits())


def _per_topic(deadline_ms: float | Mapping[str, float] | None) -> object:
    if deadline_ms is None:
        return {}
    return deadline_ms if isinstance(deadline_ms, Mapping) else {"*": deadline_ms}


_MEANT = {
    "delivery": '"reliable" or "none", or a mapping from topic patterns to these',
    "deadline_ms": "a positive number of milliseconds, or a mapping from topic patterns to such",
    "profile": '"D-1", "D-2" or "D-3"',
    "order": "a guarantee, or a mapping from topic patterns to guarantees",
    "buffer": "a number of events, or None for no bound",
    "hold_s": "a positive number of seconds",
    "discovery_s": "a positive number of seconds",
    "patience_s": "a positive number of seconds",
    "stamps": '"exact" or "paper"',
    "manage": "True or False",
    "trace": "a folder",
    "name": "made of letters, digits and . _ -",
    "replicas": "a number of copies from 1 to 9",
    "disk": "a folder",
    "adapt": 'True, False or "resources"',
    "period_s": "a positive number of seconds",
    "found": "True or False",
}


def _options(given: dict[str, object]) -> Options:
    try:
        return msgspec.convert(given, Options)
    except msgspec.ValidationError as error:
        found = re.search(r"\$\.(\w+)", str(error))
        option = found.group(1) if found else "order"
        raise BadInput(f"{option} is {_MEANT[option]}, not {given[option]!r}") from None


def _check_bus_order(options: Options, make: Callable[[], EventService]) -> None:
    """Where the bus is to make the order, it can, and nothing below lets events overtake."""
    if "bus" not in {total.by for total in options.totals.values()}:
        return
    if not make().native_order:
        raise Unsupported(
            'Total(by="bus"): this bus does not hand its topics to all readers in one order; use '
            'Total(by="log")'
        )
    if options.recovering:
        raise Unsupported(
            'Total(by="bus") with delivery="reliable": what is recovered comes later than the bus '
            'had it; use Total(by="log")'
        )


def _check_domains(totals: Mapping[str, Total]) -> None:
    """Patterns of one domain say the same of it."""
    known: dict[str, Total] = {}
    for total in totals.values():
        if total.by == "log" and known.setdefault(total.domain, total) != total:
            raise BadInput(f"two patterns say different things of domain {total.domain!r}")


def _check_guarantee(pattern: str, guarantee: str) -> None:
    if guarantee in SUPPORTED:
        return
    if guarantee in PLANNED:
        raise Unsupported(
            f"order {guarantee!r} (for {pattern!r}) is not supported yet; use one of {SUPPORTED}"
        )
    raise BadInput(f"order {guarantee!r} (for {pattern!r}) is unknown; use one of {SUPPORTED}")


# From id, options, limits, the open event service and the disk to a node.
MakeNode = Callable[[str, Options, Limits, EventService, Disk | None], Node]


class Connection:
    """What `connect` returns: an async context manager, or `await connection.open()`."""

    def __init__(
        self, service: Callable[[], EventService], options: Options, limits: Limits
    ) -> None:
        self._make: MakeNode = _node
        self._service = service
        self._options = options
        self._limits = limits
        self._bus: Bus | None = None

    def with_node(self, make: MakeNode) -> Connection:
        """The same connection with a stack of one's own, for comparisons and new layers."""
        self._make = make
        return self

    def beneath(self, layer: FrameLayer) -> Connection:
        """The same connection with one more frame layer at the bottom: for faults."""
        make = self._make

        def lower(*args: Any) -> Node:
            node = make(*args)
            node.frame_layers = (*node.frame_layers, layer)
            return node

        self._make = lower
        return self

    async def __aenter__(self) -> Bus:
        self._bus = await self.open()
        return self._bus

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._bus is not None
        await self._bus.close()

    async def open(self) -> Bus:
        """Connect and join. The caller closes the bus."""
        options = self._options
        node_id = f"{options.name or 'node'}-{secrets.token_hex(4)}"
        disk = Disk(Path(options.disk), tuple(options.domains)) if options.disk else None
        if disk is not None:
            node_id = disk.node_id(node_id)
        recorder = _recorder(options, node_id, self._limits)
        service = self._service()
        runtime = Runtime(node_id, service, recorder, disk, disk.logs if disk is not None else None)
        flusher = asyncio.create_task(_flush(recorder, runtime))

        def shut() -> None:
            flusher.cancel()
            recorder.close()
            if disk is not None:
                disk.close()

        bus = Bus(runtime, shut, leave_s=options.patience_s)
        try:
            if options.recovering:
                await asyncio.to_thread((options.reliability or Reliability()).prepare)
            await runtime.open(
                lambda opened: self._make(node_id, options, self._limits, opened, disk)
            )
        except BaseException:
            await bus.close()  # others may already count on this node
            raise
        return bus


def _node(
    node_id: str, options: Options, limits: Limits, service: EventService, disk: Disk | None
) -> Node:
    """The stack for these guarantees on this bus, top first."""
    if service.max_frame_bytes is not None:
        most = service.max_frame_bytes - _ENVELOPE_BYTES
        limits = msgspec.structs.replace(limits, payload_bytes=min(limits.payload_bytes, most))
    layers: list[Layer] = []
    life = disk.life() if disk is not None else 0
    if options.domains:
        layers.append(_log_order(node_id, options, limits, service, disk, life))
    if options.stamped:
        discovery_s = service.discovery_s if options.discovery_s is None else options.discovery_s
        stored = disk.load() if disk is not None else None
        members = Membership(
            node_id,
            limits,
            manage=options.manage,
            found=options.found,
            dialect=options.stamps,
            replicas=options.replicas or service.replicas,
            spread=service.replicas > 1,
            period_us=round(options.period_s * SECOND),
            stored=stored.get(STORE_KEY) if stored is not None else None,
            discovery_us=round(discovery_s * SECOND),
            patience_us=round(max(options.patience_s, 4 * discovery_s) * SECOND),
        )
        if options.adapt == "resources":
            members.free = free_processor
        layers.append(
            TotalOrder(
                node_id,
                members,
                exact=options.stamps == "exact",
                buffer=options.buffer,
                hold_us=round(options.hold_s * SECOND) if options.buffer != 0 else None,
                catch_up_us=round(options.hold_s * SECOND),
                patience_us=round(options.patience_s * SECOND),
                retry_us=round(2 * options.period_s * SECOND),
                adapt=Adapt() if options.adapt else None,
                stored=stored,
                life=life,
                covers=lru_cache(1 << 16)(options.covers),
                limits=limits,
            )
        )
    if "fifo" in options.order.values():
        kept = lru_cache(1 << 16)(options.in_fifo)
        layers.append((options.fifo or Fifo()).layer(node_id, kept, limits, life))
    layers.insert(0, Content())
    if options.deadline_ms or options.profile is not None:
        layers.insert(0, Deadline(options.goals))
    frames: list[FrameLayer] = []
    if options.recovering:
        reliability = options.reliability or Reliability()
        rng = Random(secrets.token_bytes(16))
        recovers = lru_cache(1 << 16)(options.recovers)
        frames.append(reliability.layer(node_id, rng, limits, recovers))
    return Node(node_id, layers, frames, limits, options.trace is not None, life)


def _log_order(
    node_id: str,
    options: Options,
    limits: Limits,
    service: EventService,
    disk: Disk | None,
    life: int,
) -> LogOrder:
    """The layer of the domains that have a log."""
    discovery_s = service.discovery_s if options.discovery_s is None else options.discovery_s
    stored = disk.load() if disk is not None else {}
    domains = []
    for name, total in options.domains.items():
        hello = Hello(
            unknown_log(name),
            options.name or "",
            gethostname()[:100],
            manages=options.manage,
            disk=disk is not None,
            found=options.manage and options.found,
        )
        retention = Retention(
            seconds=total.retention_s, bytes=max(1, round(total.retention_mb * (1 << 20)))
        )
        domains.append(
            Domain(
                name,
                node_id,
                hello,
                Random(secrets.token_bytes(16)),
                limits,
                LogOptions(
                    voters=total.voters or service.replicas,
                    period_us=round(options.period_s * SECOND),
                    discovery_us=round(discovery_s * SECOND),
                    join_us=round(max(options.patience_s, 4 * discovery_s) * SECOND),
                    patience_us=round(options.patience_s * SECOND),
                    hold_us=round(options.hold_s * SECOND),
                    retention=retention,
                ),
                incarnation=life,
                durable=disk is not None,
                stored=load(stored, name, *disk.loaded.pop(name)) if disk is not None else None,
            )
        )
    chosen = lru_cache(1 << 16)(options.domain)
    return LogOrder(node_id, domains, chosen, votes=options.manage)


def _recorder(options: Options, node_id: str, limits: Limits) -> Recorder:
    if options.trace is None:
        return NullRecorder()
    folder = Path(options.trace)
    try:
        recorder = ParquetRecorder(folder / "trace", node_id, limits.trace_rows)
    except OSError as error:
        raise BadInput(f"cannot record a trace into {folder}: {error}") from None
    promises = ["phantoms"]
    if options.ordered:
        promises += ["total-order", "topic-fifo", "duplicates"]
    if set(options.domains) and len(options.domains) == 1 and set(options.order) == {"*"}:
        promises += ["fifo"]
    if set(options.order.values()) == {"fifo"} and "*" in options.order:
        promises += ["fifo", "topic-fifo", "duplicates"]
    if options.ordered and options.stamps == "exact" and len(options.domains) < 2:
        promises.append("global-order")
    about: dict[str, Any] = {
        "version": unisono_version(),
        "order": options.order,
        "promises": promises,
    }
    if options.deadline_ms.keys() == {"*"}:  # the audit knows one deadline for all topics
        about["deadline_us"] = round(options.deadline_ms["*"] * 1000)
    write_run(folder, about)
    return recorder


async def _flush(recorder: Recorder, runtime: Runtime) -> None:
    """Write the trace every few seconds, so that a killed process loses little of it."""
    while True:
        await asyncio.sleep(_FLUSH_TRACE_S)
        try:
            recorder.flush()
        except OSError as error:
            runtime.fail(BusClosed(f"the trace cannot be written: {error}"))
            return
