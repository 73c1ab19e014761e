"""A declared list of layers, top first, and the routing of effects between neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unisono.core.effects import (
    CancelTimer,
    Done,
    Effect,
    Notify,
    Publish,
    Receive,
    Send,
    SetTimer,
    Subscribe,
    Unsubscribe,
)
from unisono.core.events import Control, Event, Status
from unisono.core.layer import Effects, Layer
from unisono.core.predicate import Predicate

SEPARATOR = "|"  # between a layer's name and its own names of tickets
TimerKey = tuple[str, Any]  # a layer's name, and its own key

DOWN = (Publish, Send, Subscribe, Unsubscribe)


class Stack:
    """Routes effects depth first, so what a layer returned first also happens first."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        names = [layer.name for layer in self.layers]
        assert len(set(names)) == len(names), f"two layers of one name: {names}"
        self._by_name = {layer.name: index for index, layer in enumerate(self.layers)}
        self._owner = {
            control: index for index, layer in enumerate(self.layers) for control in layer.controls
        }

    @property
    def controls(self) -> tuple[type[Control], ...]:
        """Every control type of every layer, for the wire format."""
        return tuple(self._owner)

    # Each of these returns the effects that leave the stack.

    def start(self, now: int) -> list[Effect]:
        return self._each(lambda layer: layer.start(now), now, bottom_first=True)

    def close(self, now: int) -> list[Effect]:
        return self._each(lambda layer: layer.close(now), now)

    def farewell(self, now: int) -> list[Effect]:
        return self._each(lambda layer: layer.farewell(now), now)

    def reconnected(self, now: int) -> list[Effect]:
        return self._each(lambda layer: layer.reconnected(now), now, bottom_first=True)

    def publish(self, event: Event, now: int) -> list[Effect]:
        if not self.layers:
            return [Publish(event)]
        out: list[Effect] = []
        self._route(0, self.layers[0].publish(event, now), now, out)
        return out

    def subscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> list[Effect]:
        return self._enter((Subscribe(tuple(topics), ticket),), now)

    def unsubscribe(self, topics: Sequence[str], ticket: str | None, now: int) -> list[Effect]:
        return self._enter((Unsubscribe(tuple(topics), ticket),), now)

    def narrow(self, topics: Sequence[str], where: Predicate | None) -> None:
        for layer in self.layers:
            layer.narrow(topics, where)

    def notify(self, event: Event, now: int) -> list[Effect]:
        """An event has come up from the event service."""
        out: list[Effect] = []
        if not self.layers:
            return [Notify(event, Status.IN_ORDER)]
        lowest = len(self.layers) - 1
        self._route(lowest, self.layers[lowest].notify(event, Status.IN_ORDER, now), now, out)
        return out

    def receive(self, message: Control, sender: str, now: int) -> list[Effect]:
        """A control has come up from the event service."""
        out: list[Effect] = []
        owner = self._owner[type(message)]
        self._route(owner, self.layers[owner].receive(message, sender, now), now, out)
        return out

    def timer(self, key: TimerKey, now: int) -> list[Effect]:
        name, local = key
        index = self._by_name[name]
        out: list[Effect] = []
        self._route(index, self.layers[index].timer(local, now), now, out)
        return out

    def synced(self, log: str, count: int, now: int) -> list[Effect]:
        """So many more records of this log are on the disk."""
        out: list[Effect] = []
        for index, layer in enumerate(self.layers):
            self._route(index, layer.synced(log, count, now), now, out)
        return out

    def effective(self, ticket: str, now: int) -> list[Effect]:
        name, _, local = ticket.partition(SEPARATOR)
        index = self._by_name[name]
        out: list[Effect] = []
        self._route(index, self.layers[index].effective(local, now), now, out)
        return out

    def _each(
        self, ask: Callable[[Layer], Effects], now: int, bottom_first: bool = False
    ) -> list[Effect]:
        out: list[Effect] = []
        indices = range(len(self.layers))
        for index in reversed(indices) if bottom_first else indices:
            self._route(index, ask(self.layers[index]), now, out)
        return out

    def _enter(self, effects: Effects, now: int) -> list[Effect]:
        out: list[Effect] = []
        self._route(-1, effects, now, out)
        return out

    def _route(self, index: int, effects: Effects, now: int, out: list[Effect]) -> None:
        """Carry the effects that layer `index` returned to its neighbours, or out."""
        below = index + 1
        bottom = below >= len(self.layers)
        for effect in effects:
            kind = type(effect)
            if bottom and (kind is Send or kind is Publish):
                out.append(effect)
            elif kind is Notify:
                assert isinstance(effect, Notify)
                if index <= 0:
                    out.append(effect)
                else:
                    upper = self.layers[index - 1]
                    self._route(index - 1, upper.notify(effect.event, effect.status, now), now, out)
            elif kind is Receive:
                assert isinstance(effect, Receive)
                owner = self._owner[type(effect.message)]
                assert owner < index, "a control goes up to its owner"
                layer = self.layers[owner]
                self._route(owner, layer.receive(effect.message, effect.sender, now), now, out)
            elif kind is SetTimer or kind is CancelTimer:
                out.append(self._named(index, effect))
            elif kind is Done and SEPARATOR in effect.ticket:  # type: ignore[attr-defined]
                out += self.effective(effect.ticket, now)  # type: ignore[attr-defined]
            elif bottom or not isinstance(effect, DOWN):
                out.append(effect)
            else:
                self._route(below, self._down(self.layers[below], effect, now), now, out)

    @staticmethod
    def _down(layer: Layer, effect: Publish | Send | Subscribe | Unsubscribe, now: int) -> Effects:
        if isinstance(effect, Publish):
            return layer.publish(effect.event, now)
        if isinstance(effect, Send):
            return layer.send(effect.to, effect.message, now)
        if isinstance(effect, Subscribe):
            return layer.subscribe(effect.topics, effect.ticket, now)
        return layer.unsubscribe(effect.topics, effect.ticket, now)

    def _named(self, index: int, effect: Effect) -> Effect:
        name = self.layers[index].name
        if isinstance(effect, SetTimer):
            return SetTimer((name, effect.key), effect.at_us)
        assert isinstance(effect, CancelTimer)
        return CancelTimer((name, effect.key))
