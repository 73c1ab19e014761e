"""A layer: one guarantee, as a state machine. The same four operations above and below.

Every method takes the time from outside and returns effects. The defaults pass everything through,
so a layer overrides only what it changes; `qos/template.py` shows how to write one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from unisono.core.effects import (
    Arrive,
    Effect,
    Notify,
    Publish,
    Send,
    Subscribe,
    Transmit,
    Unsubscribe,
)
from unisono.core.events import Control, Event, Status
from unisono.core.predicate import Predicate

Effects = Iterable[Effect]


class Layer:
    """A quality-of-service layer of a stack. It sees events and controls."""

    name: ClassVar[str]
    controls: ClassVar[tuple[type[Control], ...]] = ()  # messages that this layer owns
    joins: ClassVar[bool] = False  # it says Done("join") and Done("close") itself

    def start(self, now: int) -> Effects:
        """Called once, before anything else."""
        return ()

    def close(self, now: int) -> Effects:
        """The node is about to leave; a layer that joins says Done("close") when it may."""
        return ()

    def effective(self, ticket: str, now: int) -> Effects:
        """A Subscribe of this layer, under a ticket that begins with its name, is effective."""
        raise AssertionError(f"layer {self.name} did not subscribe under {ticket!r}")

    @property
    def ignored(self) -> Mapping[str, int]:
        """How many events were not passed up, by reason."""
        return {}

    def farewell(self, now: int) -> Effects:
        """Last words: the layers have let go and nothing is under way."""
        return ()

    def reconnected(self, now: int) -> Effects:
        """The event service was away for a while; what was in flight may be lost."""
        return ()

    def publish(self, event: Event, now: int) -> Effects:
        return (Publish(event),)

    def subscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        return (Subscribe(tuple(topics), ticket),)

    def unsubscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> Effects:
        return (Unsubscribe(tuple(topics), ticket),)

    def narrow(self, topics: Sequence[str], where: Predicate | None) -> None:
        """Of these topics the application wants only what matches; None: everything."""

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        return (Notify(event, status),)

    def send(self, to: str, message: Control, now: int) -> Effects:
        """A control of a layer above on its way down."""
        return (Send(to, message),)

    def receive(self, message: Control, sender: str, now: int) -> Effects:
        """A control that this layer owns."""
        raise AssertionError(f"layer {self.name} owns no control {type(message).__name__}")

    def timer(self, key: Any, now: int) -> Effects:
        raise AssertionError(f"layer {self.name} set no timer {key!r}")

    def synced(self, log: str, count: int, now: int) -> Effects:
        """So many more records of this log are on the disk."""
        return ()


class FrameLayer:
    """A layer below the wire format: it sees frames, not their meaning. Faults are frame layers."""

    name: ClassVar[str]
    talks: ClassVar[bool] = False  # it sends messages of its own to nodes

    def start(self, now: int) -> Effects:
        """Called once, before anything else."""
        return ()

    def listening(self, topics: Sequence[str], now: int) -> Effects:
        """The node is about to receive these topics."""
        return ()

    def ignoring(self, topics: Sequence[str], now: int) -> Effects:
        """The node no longer wants these topics."""
        return ()

    def publish(self, topic: str, frame: bytes, now: int) -> Effects:
        return (Transmit(topic, frame),)

    def notify(self, topic: str, frame: bytes, now: int) -> Effects:
        return (Arrive(topic, frame),)

    def timer(self, key: str, now: int) -> Effects:
        raise AssertionError(f"frame layer {self.name} set no timer {key!r}")
