"""Every bound of the product in one place, with what happens when it is reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

import msgspec

from unisono.core.predicate import Value
from unisono.errors import BadInput

TOPIC_CHARS = 200
_TOPIC_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:")
RESERVED = "_unisono."
ATTRIBUTES_BYTES = 1 << 14
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,99}")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one node. Defaults suit a service; tests make them small."""

    payload_bytes: int = 1 << 20  # publish refuses a larger payload
    attributes: int = 64  # of an event; publish refuses more
    outstanding: int = 1024  # publications not yet acknowledged: publish waits
    notifications: int = 8192  # not yet read by the application: the bus is read no further
    reorder_events: int = (
        1 << 20
    )  # "unbounded" reorder buffer: the oldest is released as gap_skipped
    early_events: int = 8192  # events before the subscription's start is known: oldest is dropped
    given_up_numbers: int = 65536  # per topic, skipped and still welcome as out_of_order
    publishers: int = 1 << 17  # per topic manager, ever: requests of further ones are refused
    own_ids: int = 1 << 16  # event ids that publishers chose, remembered: the first is forgotten
    fifo_publishers: int = 1 << 16  # followed by a receiver: the first is forgotten
    parked: int = 1 << 16  # messages for topics whose manager is about to arrive: refused
    members: int = 4096  # processes of one bus: further ones are turned away
    trace_rows: int = 1 << 16  # rows in memory before they are written to disk

    def __post_init__(self) -> None:
        _check_positive(self)


class MeshLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one process of a mesh, and how long it waits for a peer."""

    message_bytes: int = 2 << 20  # send refuses a larger one, and a peer that sends one is dropped
    queue_messages: int = 1 << 16  # to one peer, not yet acknowledged: send says False
    queue_bytes: int = 8 << 20  # of them: likewise
    window_bytes: int = 4 << 20  # received in one lane and not yet taken: the sender waits
    peers: int = 1024  # sessions: the longest silent is dropped, or a further one refused
    give_up_us: int = 5_000_000  # nothing acknowledged: the peer is gone

    def __post_init__(self) -> None:
        _check_positive(self)


def _check_positive(limits: msgspec.Struct) -> None:
    for name in limits.__struct_fields__:
        value = getattr(limits, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            kind = type(limits).__name__
            raise BadInput(f"{kind}.{name} is a positive whole number, not {value!r}")


def check_fields(options: msgspec.Struct) -> None:
    """Every field of the options is what its type says, or BadInput that names it."""
    for field in msgspec.structs.fields(type(options)):
        try:
            msgspec.convert(getattr(options, field.name), field.type)
        except msgspec.ValidationError as error:
            raise BadInput(f"{field.name}: {error}") from None


def check_topic(topic: str) -> str:
    """The topic, or BadInput that says what is wrong with it."""
    if not isinstance(topic, str) or not topic:
        raise BadInput(f"a topic is a non-empty string, not {topic!r}")
    if len(topic) > TOPIC_CHARS:
        raise BadInput(f"topic of {len(topic)} characters; at most {TOPIC_CHARS} are allowed")
    if not _TOPIC_ALPHABET.issuperset(topic):
        bad = sorted(set(topic) - _TOPIC_ALPHABET)
        raise BadInput(f"topic {topic!r} has {bad[0]!r}; use letters, digits and . _ - / :")
    if topic.startswith(RESERVED):
        raise BadInput(f"topics that start with {RESERVED!r} are reserved for Unisono itself")
    if "" in topic.split("."):
        raise BadInput(f"topic {topic!r} has an empty part between dots")
    return topic


def check_payload(payload: bytes, limits: Limits) -> bytes:
    """The payload, or BadInput that says why it is refused."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise BadInput(f"a payload is bytes, not {type(payload).__name__}; encode it first")
    payload = bytes(payload)
    if len(payload) > limits.payload_bytes:
        raise BadInput(
            f"payload of {len(payload)} bytes is over the limit of {limits.payload_bytes}; "
            "split it, or raise Limits.payload_bytes on every node"
        )
    return payload


def check_attributes(attributes: Mapping[str, Value], limits: Limits) -> dict[str, Value]:
    """The attributes of an event, or BadInput that says which one is refused."""
    if not isinstance(attributes, Mapping):
        raise BadInput(f"attributes are a mapping, not {type(attributes).__name__}")
    if len(attributes) > limits.attributes:
        raise BadInput(f"{len(attributes)} attributes; at most {limits.attributes} are allowed")
    plain: dict[str, Value] = {}
    size = 0
    for name, value in attributes.items():
        if not isinstance(name, str) or not _ATTRIBUTE.fullmatch(name):
            raise BadInput(f"attribute {name!r}: a name has letters, digits, _ and . (at most 100)")
        plain[name] = _plain(name, value)
        size += len(name) + (len(value.encode()) if isinstance(value, str) else 10)
    if size > ATTRIBUTES_BYTES:
        raise BadInput(f"attributes of {size} bytes; at most {ATTRIBUTES_BYTES} are allowed")
    return plain


def _plain(name: str, value: Value) -> Value:
    """The value as one of the four types themselves: nothing else travels."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadInput(f"attribute {name!r} is not text: it has half a surrogate") from None
        return str.__str__(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise BadInput(f"attribute {name!r} does not fit into 64 bits")
        return int(value)
    if not isinstance(value, float) or not isfinite(value):
        raise BadInput(f"attribute {name!r}: a string, a finite number, or a bool")
    return float(value)
