"""The options of the data source, checked: what is not known or makes no sense is refused."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from unisono.core.limits import check_topic
from unisono.core.predicate import parse
from unisono.ens.base import public
from unisono.errors import BadInput, Unsupported
from unisono.net.collect import Wish
from unisono.net.connect import connect

SPARKS_OWN = ("checkpointlocation", "queryname")  # it passes these on as well
Order = Literal["none", "fifo", "total"]


def _spelt(field: str) -> str:
    """As users write it: max_rows is maxRows."""
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


class _Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options come as texts, their names in any case."""


class StreamOptions(_Options, frozen=True):
    """Of a stream of events: from a bus by way of a journal, or from a journal that others fill."""

    bus: str | None = None
    topics: str | None = None  # separated by commas
    order: Order = "total"
    delivery: Literal["none", "reliable"] = "none"
    where: str | None = None
    journal: str | None = None  # a folder that driver and executors see
    start: str = "earliest"  # or latest, or a position
    max_rows: Annotated[int, Meta(ge=1)] = 1_000_000  # of a micro-batch
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 8  # of a micro-batch, at most
    reader: str = "spark"  # the name under which the journal keeps what is not done yet
    keep_gb: Annotated[float, Meta(gt=0)] = 10.0
    linger_s: Annotated[float, Meta(ge=1)] = 600.0

    @property
    def first(self) -> int | Literal["earliest", "latest"]:
        if self.start == "earliest" or self.start == "latest":
            return self.start  # type: ignore[return-value]
        if not self.start.isdigit():
            raise BadInput(f"start is earliest, latest or a position, not {self.start!r}")
        return int(self.start)

    @property
    def wish(self) -> Wish | None:
        """What a collector is to do; None: somebody else fills the journal."""
        if self.bus is None:
            return None
        assert self.topics is not None
        return Wish(
            url=self.bus,
            folder=str(self.folder),
            topics=tuple(topic.strip() for topic in self.topics.split(",")),
            order=self.order,
            delivery=self.delivery,
            where=self.where,
            keep_bytes=round(self.keep_gb * 1e9),
            linger_s=self.linger_s,
        )

    @property
    def folder(self) -> Path:
        if self.journal is not None:
            return Path(self.journal).absolute()
        assert self.bus is not None and self.topics is not None
        topics = ",".join(sorted(topic.strip() for topic in self.topics.split(",")))
        told = (public(self.bus), topics, self.order, self.delivery, self.where or "")
        digest = hashlib.sha256("\0".join(told).encode()).hexdigest()
        return state_home() / "journals" / digest[:24]


class SinkOptions(_Options, frozen=True):
    """Of what is published."""

    bus: str
    topic: str | None = None  # else a column says
    order: Order = "total"
    delivery: Literal["none", "reliable"] = "none"
    spool: str | None = None  # where the driver keeps batches until they are published
    max_mb: Annotated[float, Meta(gt=0)] = 256.0  # of a micro-batch

    @property
    def folder(self) -> Path:
        return Path(self.spool).absolute() if self.spool else state_home() / "spool"


class TableOptions(_Options, frozen=True):
    """Of a table of a trace folder, or of a journal, as a batch."""

    path: str | None = None
    table: str = "deliveries"
    journal: str | None = None
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 8


Some = TypeVar("Some", bound=_Options)


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    options = _convert(given, StreamOptions, "a stream of events")
    if options.bus is None and options.journal is None:
        raise BadInput('give option("bus", "nats://...") and topics, or option("journal", folder)')
    if (options.bus is None) != (options.topics is None):
        raise BadInput("bus and topics belong together")
    if options.bus is None:
        for name in ("order", "delivery", "where"):
            if name in given:
                raise BadInput(f"{name} is a wish to the bus; without one it does nothing")
    _ = options.first
    if (wish := options.wish) is not None:
        for topic in wish.topics:
            check_topic(topic)
        if wish.where is not None:
            parse(wish.where)
        _check_bus(wish.url, wish.order, wish.delivery)
    return options


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    options = _convert(given, SinkOptions, "a sink")
    if options.topic is not None:
        check_topic(options.topic)
    _check_bus(options.bus, options.order, options.delivery)
    return options


def table_options(given: Mapping[str, str]) -> TableOptions:
    if "bus" in given:
        raise BadInput("a bus is read as a stream: spark.readStream")
    options = _convert(given, TableOptions, "a batch")
    if (options.path is None) == (options.journal is None):
        raise BadInput('give a trace folder, load(folder), or option("journal", folder)')
    if options.journal is not None and "table" in given:
        raise BadInput("a journal has no tables")
    return options


def _check_bus(url: str, order: str, delivery: str) -> None:
    """Refuses what no other process can reach, or what the bus cannot do."""
    if urlsplit(url).scheme == "memory":
        raise Unsupported(
            "memory:// is a bus within one process, and Spark has several: use a real one"
        )
    connect(url, order=order, delivery=delivery)


def _convert(given: Mapping[str, str], kind: type[Some], what: str) -> Some:
    fields = {name.replace("_", ""): name for name in kind.__struct_fields__}
    plain = {}
    for name, value in given.items():
        field = fields.get(name.lower())
        if name.lower() in SPARKS_OWN:
            continue
        if field is None:
            known = ", ".join(_spelt(name) for name in kind.__struct_fields__)
            raise BadInput(f"no option {name!r} for {what}; there are {known}")
        plain[field] = value
    try:
        return msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        for field in kind.__struct_fields__:
            text = text.replace(f"`$.{field}`", _spelt(field)).replace(f"`{field}`", _spelt(field))
        raise BadInput(f"options of {what}: {text}") from None


def state_home() -> Path:
    """Where this user's journals and spools are, unless options say otherwise."""
    if chosen := os.environ.get("UNISONO_HOME"):
        return Path(chosen)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "unisono"
