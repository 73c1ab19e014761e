"""Which bus an address names, and how to open it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec
from msgspec import Meta

from unisono.core.limits import check_topic
from unisono.ens.base import EventService
from unisono.ens.memory import MemoryService
from unisono.ens.nats import NatsService
from unisono.ens.scribe.options import SECOND, Shape
from unisono.errors import BadInput, EnvironmentLacks

KEY_FILE = "UNISONO_KEY_FILE"  # the environment's answer to "which key?"
_CONNECT_S = 5.0
_JOIN_S = 15.0  # a mesh that is just electing takes a while

Make = Callable[[], EventService]
Query = dict[str, str]


def service_of(url: str, patience_s: float) -> Make:
    """How to make the event service of an address."""
    if not isinstance(url, str):
        raise BadInput(f"an address is a string, not {type(url).__name__}")
    try:
        parts = urlsplit(url)
        query = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
        if parts.scheme == "nats":
            return _nats(url, parts, parts.port, query, min(patience_s, _CONNECT_S))
    except ValueError as error:
        raise BadInput(f"{url!r} is not an address: {error}") from None
    if parts.scheme == "memory":
        return _memory(url, parts, query)
    if parts.scheme == "mesh":
        return _mesh(url, parts, query, min(patience_s, _JOIN_S))
    known = "memory://, nats:// and mesh://"
    raise BadInput(f"{url!r} names no bus that is supported; use {known}")


def _memory(url: str, parts: SplitResult, query: Query) -> Make:
    if parts.path:
        raise BadInput(f"a memory address is memory://name, without {parts.path!r}")
    unknown = set(query) - {"delay_ms", "jitter_ms"}
    if unknown:
        raise BadInput(f"memory:// knows delay_ms and jitter_ms, not {sorted(unknown)[0]!r}")
    try:
        delays = {key: float(value) for key, value in query.items()}
    except ValueError:
        raise BadInput(f"delay_ms and jitter_ms are numbers in {url!r}") from None
    if any(not 0 <= value < 1e6 for value in delays.values()):
        raise BadInput(f"delay_ms and jitter_ms are between 0 and 1000000 in {url!r}")
    delay_ms, jitter_ms = delays.get("delay_ms", 0.0), delays.get("jitter_ms", 0.0)
    return lambda: MemoryService(parts.netloc, delay_ms, jitter_ms)


def _nats(url: str, parts: SplitResult, port: int | None, query: Query, connect_s: float) -> Make:
    if not parts.hostname or query or port == 0:
        raise BadInput(f"a NATS address is nats://host:port or nats://host:port/space, not {url!r}")
    space = parts.path.strip("/") or "unisono"
    check_topic(space)
    credentials = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    server = f"nats://{credentials}{host}:{port or 4222}"
    return lambda: NatsService(server, space, connect_s=connect_s)


class _MeshQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may follow the question mark of a mesh address."""

    key: str | None = None  # the file
    insecure: bool = False
    listen: str | None = None
    advertise: str | None = None
    cluster: str = ""
    trees: int | None = None
    backups: int | None = None
    beat_ms: Annotated[float, Meta(ge=1, le=3_600_000)] | None = None


def _mesh(url: str, parts: SplitResult, query: Query, connect_s: float) -> Make:
    if parts.path not in ("", "/"):
        raise BadInput(f"a mesh address is mesh://127.0.0.1:7400, without {parts.path!r}")
    try:
        asked = msgspec.convert(query, _MeshQuery, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"{url!r}: {error}") from None
    try:
        from unisono.net import names
        from unisono.net.keys import read_key
        from unisono.net.mesh import MeshService, Settings
    except ImportError:
        raise EnvironmentLacks("the mesh needs pip install 'unisono[mesh]'") from None
    seeds = tuple(seed for seed in parts.netloc.split(",") if seed)
    if not seeds and asked.listen is None:
        raise BadInput("mesh:// needs the address of a node, or ?listen=127.0.0.1:7400 to be one")
    file = asked.key or os.environ.get(KEY_FILE)
    if file is None and not asked.insecure:
        raise BadInput(
            f"a mesh needs a key: name its file behind the address, as ?key=FILE, or in {KEY_FILE} "
            "(one is made by `unisono mesh key FILE`; `unisono node` has --key-file and "
            "--insecure), or say ?insecure=1 to go without protection"
        )
    if asked.key is not None and asked.insecure:
        raise BadInput("key and insecure exclude each other; leave one out")
    listens = asked.listen is not None
    given = {"trees": asked.trees, "backups": asked.backups, "beat_ms": asked.beat_ms}
    shape = {name: value for name, value in given.items() if value is not None}
    if seeds and shape:
        raise BadInput(f"{', '.join(shape)}: that is for the first node of a mesh; others follow")
    if asked.cluster and not listens:
        raise BadInput("a guest is in the cluster of the node that it joins: leave out cluster")
    if asked.cluster:
        check_topic(asked.cluster)
    elif listens and not seeds:
        raise BadInput(
            "the first node of a mesh says which cluster it is of: --cluster NAME, or "
            "?cluster=NAME in the address"
        )
    for address in (*seeds, asked.listen, asked.advertise):
        if address is not None:
            names.check(address)
    if "beat_ms" in shape:
        shape["beat_us"] = round(shape.pop("beat_ms") * SECOND / 1000)
    settings = Settings(
        listen=asked.listen,
        advertise=asked.advertise,
        seeds=seeds,
        cluster=asked.cluster,
        node=listens,
        key=None if asked.insecure else read_key(Path(str(file))),
        shape=msgspec.structs.replace(Shape(), **shape),
    )
    return lambda: MeshService(settings, connect_s)
