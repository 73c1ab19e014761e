"""Faults as ordinary frame layers: loss and bursts of it, duplication, replay, delay, reordering,
corruption.

They act on what a node sends, below the wire format. Each draws from a stream of its own, and each
fault is written to the trace's table `faults`. They end with the safety phase (`Weather.calm`).
"""

from __future__ import annotations

import random
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from unisono.core.effects import Effect, Record, SetTimer, Transmit
from unisono.core.entropy import stream
from unisono.core.layer import Effects, FrameLayer
from unisono.core.limits import RESERVED
from unisono.sim.weather import Weather

Share = Annotated[float, Meta(ge=0, le=0.9)]  # a probability; above this nothing gets through


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Probabilities per frame. `only` restricts them to "events" or "messages" (point to point)."""

    loss: Share = 0.0
    burst: Share = 0.0  # begins to lose the next frames too, eight on average
    duplicate: Share = 0.0
    replay: Share = 0.0  # comes once more, up to `replay_s` later
    replay_s: Annotated[float, Meta(ge=0, le=1e6)] = 30.0
    delay: Share = 0.0
    delay_ms: Annotated[float, Meta(ge=0, le=1e9)] = 500.0
    reorder: Share = 0.0
    corrupt: Share = 0.0
    only: Literal["all", "events", "messages"] = "all"
    draw: bool = False  # the shares are the greatest: each seed draws its own, often zero

    def drawn(self, rng: random.Random) -> Faults:
        """This seed's shares."""
        if not self.draw:
            return self
        names = ("loss", "burst", "duplicate", "replay", "delay", "reorder", "corrupt")
        shares = {}
        for name in names:
            kept, share = rng.random() < 0.6, rng.random() * getattr(self, name)
            shares[name] = share if kept else 0.0
        return msgspec.structs.replace(self, **shares)

    @property
    def lossy(self) -> bool:
        """Frames may fail to arrive."""
        return self.loss > 0 or self.burst > 0 or self.corrupt > 0

    @property
    def loses_events(self) -> bool:
        return self.lossy and self.only != "messages"


class _Fault(FrameLayer):
    def __init__(
        self,
        node_id: str,
        probability: float,
        rng: random.Random,
        only: str,
        weather: Weather | None = None,
    ) -> None:
        self._node_id = node_id
        self._probability = probability
        self._rng = rng
        self._only = only
        self._weather = weather or Weather()

    def publish(self, topic: str, frame: bytes, now: int) -> Effects:
        if self._weather.calm:
            return (Transmit(topic, frame),)
        point_to_point = topic.startswith(RESERVED)
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


class Burst(_Fault):
    """This frame and the following ones are not sent."""

    name: ClassVar[str] = "burst"
    _left = 0

    def publish(self, topic: str, frame: bytes, now: int) -> Effects:
        spared = self._only == ("messages" if not topic.startswith(RESERVED) else "events")
        if self._left and not spared and not self._weather.calm:
            self._left -= 1
            return ()
        return super().publish(topic, frame, now)

    def harm(self, topic: str, frame: bytes, now: int) -> Effects:
        self._left = min(100, int(self._rng.expovariate(1 / 8)))
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

    def __init__(
        self,
        node_id: str,
        probability: float,
        rng: random.Random,
        only: str,
        weather: Weather | None = None,
    ) -> None:
        super().__init__(node_id, probability, rng, only, weather)
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

    delay_us = 500_000.0

    def harm(self, topic: str, frame: bytes, now: int) -> Effects:
        return (self.keep(topic, frame, now + 1 + round(self._rng.random() * self.delay_us)),)


class Replay(Delay):
    """The frame is sent, and again much later."""

    name: ClassVar[str] = "replay"

    def harm(self, topic: str, frame: bytes, now: int) -> Effects:
        return (Transmit(topic, frame), *super().harm(topic, frame, now))


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


_KINDS: tuple[type[_Fault], ...] = (Reorder, Delay, Replay, Duplicate, Corrupt, Burst, Loss)


def fault_layers(
    faults: Faults, node_id: str, seed: int, weather: Weather | None = None
) -> list[FrameLayer]:
    """The layers that have something to do, top first."""
    layers: list[FrameLayer] = []
    for kind in _KINDS:
        share = getattr(faults, kind.name)
        if share:
            rng = stream(seed, "fault", kind.name, node_id)
            layer = kind(node_id, share, rng, faults.only, weather)
            if isinstance(layer, Replay):
                layer.delay_us = faults.replay_s * 1e6
            elif isinstance(layer, Delay):
                layer.delay_us = faults.delay_ms * 1000
            layers.append(layer)
    return layers
