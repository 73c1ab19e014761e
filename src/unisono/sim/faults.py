"""Faults as ordinary frame layers: loss, duplication, delay, reordering, corruption.

They act on what a node sends, below the wire format. Each draws from a stream of its own, and each
fault is written to the trace's table `faults`.
"""

from __future__ import annotations

import random
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from unisono.core.effects import Effect, Record, SetTimer, Transmit
from unisono.core.entropy import stream
from unisono.core.events import INBOX
from unisono.core.layer import Effects, FrameLayer

Share = Annotated[float, Meta(ge=0, le=0.9)]  # a probability; above this nothing gets through


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Probabilities per frame. `only` restricts them to "events" or "messages" (point to point)."""

    loss: Share = 0.0
    duplicate: Share = 0.0
    delay: Share = 0.0
    delay_ms: Annotated[float, Meta(ge=0, le=1e9)] = 500.0
    reorder: Share = 0.0
    corrupt: Share = 0.0
    only: Literal["all", "events", "messages"] = "all"

    @property
    def lossy(self) -> bool:
        """Frames may fail to arrive."""
        return self.loss > 0 or self.corrupt > 0

    @property
    def loses_events(self) -> bool:
        return self.lossy and self.only != "messages"


class _Fault(FrameLayer):
    def __init__(self, node_id: str, probability: float, rng: random.Random, only: str) -> None:
        self._node_id = node_id
        self._probability = probability
        self._rng = rng
        self._only = only

    def publish(self, topic: str, frame: bytes, now: int) -> Effects:
        point_to_point = topic.startswith(INBOX)
        spared = self._only == ("messages" if not point_to_point else "events")
        if spared or self._rng.random() >= self._probability:
            return (Transmit(topic, frame),)
        row = {"at_us": now, "node": self._node_id, "kind": self.name, "detail": topic}
        return (Record("faults", row), *self.harm(topic, frame, now))

    def harm(self, topic: str, frame: bytes, now: int) -> Effects:
        raise AssertionError("a fault says what it does")


class Loss(_Fault):
    """The frame is not sent."""

    name: ClassVar[str] = "loss"

    def harm(self, topic: str, frame: bytes, now: int) -> Effects:
        return ()


class Duplicate(_Fault):
    """The frame is sent twice."""

    name: ClassVar[str] = "duplicate"

    def harm(self, topic: str, frame: bytes, now: int) -> Effects:
        return (Transmit(topic, frame), Transmit(topic, frame))


class Corrupt(_Fault):
    """One byte of the frame is changed."""

    name: ClassVar[str] = "corrupt"

    def harm(self, topic: str, frame: bytes, now: int) -> Effects:
        index = self._rng.randrange(len(frame))
        flipped = frame[index] ^ self._rng.randrange(1, 256)
        return (Transmit(topic, frame[:index] + bytes((flipped,)) + frame[index + 1 :]),)


class _Keeps(_Fault):
    """Holds frames back for a while."""

    def __init__(self, node_id: str, probability: float, rng: random.Random, only: str) -> None:
        super().__init__(node_id, probability, rng, only)
        self._kept: dict[str, tuple[str, bytes]] = {}
        self._count = 0

    def keep(self, topic: str, frame: bytes, until_us: int) -> Effect:
        self._count += 1
        key = str(self._count)
        self._kept[key] = (topic, frame)
        return SetTimer(key, until_us)

    def timer(self, key: str, now: int) -> Effects:
        topic, frame = self._kept.pop(key)
        return (Transmit(topic, frame),)


class Delay(_Keeps):
    """The frame is sent later, by up to `delay_ms`."""

    name: ClassVar[str] = "delay"

    def __init__(
        self, node_id: str, probability: float, rng: random.Random, only: str, delay_ms: float
    ) -> None:
        super().__init__(node_id, probability, rng, only)
        self._delay_us = delay_ms * 1000

    def harm(self, topic: str, frame: bytes, now: int) -> Effects:
        return (self.keep(topic, frame, now + 1 + round(self._rng.random() * self._delay_us)),)


class Reorder(_Keeps):
    """The frame is sent after the next one, or after a second if none comes."""

    name: ClassVar[str] = "reorder"

    def publish(self, topic: str, frame: bytes, now: int) -> Effects:
        out = list(super().publish(topic, frame, now))
        sent = any(isinstance(effect, Transmit) for effect in out)
        if sent and self._kept:
            out.extend(Transmit(*self._kept.pop(key)) for key in list(self._kept))
        return out

    def harm(self, topic: str, frame: bytes, now: int) -> Effects:
        return (self.keep(topic, frame, now + 1_000_000),)

    def timer(self, key: str, now: int) -> Effects:
        return super().timer(key, now) if key in self._kept else ()


def fault_layers(faults: Faults, node_id: str, seed: int) -> list[FrameLayer]:
    """The layers that have something to do, top first."""
    layers: list[FrameLayer] = []

    def rng(name: str) -> random.Random:
        return stream(seed, "fault", name, node_id)

    if faults.reorder:
        layers.append(Reorder(node_id, faults.reorder, rng("reorder"), faults.only))
    if faults.delay:
        layers.append(Delay(node_id, faults.delay, rng("delay"), faults.only, faults.delay_ms))
    if faults.duplicate:
        layers.append(Duplicate(node_id, faults.duplicate, rng("duplicate"), faults.only))
    if faults.corrupt:
        layers.append(Corrupt(node_id, faults.corrupt, rng("corrupt"), faults.only))
    if faults.loss:
        layers.append(Loss(node_id, faults.loss, rng("loss"), faults.only))
    return layers
