"""Reliable layers on a bus that loses packets, driven by hand."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from unisono.core.effects import Arrive, Effect, Transmit
from unisono.core.events import EVERYONE, inbox
from unisono.qos.coding.galois import Field
from unisono.qos.reliable.layer import ROUND_TIMER, Reliable
from unisono.qos.reliable.options import Reliability

FIELD = Field()
SECOND = 1_000_000


def layer(name: str, **options: object) -> Reliable:
    chosen = Reliability(**{"packet_bytes": 50, "packets": 6, **options})  # type: ignore[arg-type]
    made = Reliable(name, Random(name), chosen, field=FIELD)
    made.listening(("t",), 0)
    return made


def frames(effects: Iterable[Effect], topic: str = "t") -> list[bytes]:
    return [e.frame for e in effects if isinstance(e, Transmit) and e.topic == topic]


def arrived(effects: Iterable[Effect]) -> list[bytes]:
    return [e.frame for e in effects if isinstance(e, Arrive)]


class Group:
    """Nodes on a bus that loses packets."""

    def __init__(self, count: int, seed: int, loss: float, **options: object) -> None:
        self.rng = Random(seed)
        self.loss = loss
        self.nodes = {f"n{i}": layer(f"n{i}", **options) for i in range(count)}
        self.got: dict[str, list[bytes]] = {name: [] for name in self.nodes}
        self.now = 0
        self.sent = 0
        for name, node in self.nodes.items():
            self.carry(name, node.start(0), lossy=False)

    def carry(self, name: str, effects: Iterable[Effect], lossy: bool = True) -> None:
        for effect in effects:
            if isinstance(effect, Arrive):
                self.got[name].append(effect.frame)
            elif isinstance(effect, Transmit):
                self.sent += 1
                for other, node in self.nodes.items():
                    mine = effect.topic in ("t", EVERYONE, inbox(other))
                    if mine and not (lossy and self.lost(other, effect)):
                        self.carry(other, node.notify(effect.topic, effect.frame, self.now))

    def lost(self, to: str, effect: Transmit) -> bool:
        return self.rng.random() < self.loss

    def publish(self, name: str, frame: bytes) -> None:
        self.carry(name, self.nodes[name].publish("t", frame, self.now))

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.now += SECOND // 2
            for name, node in self.nodes.items():
                self.carry(name, node.timer(ROUND_TIMER, self.now))
