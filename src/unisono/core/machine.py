"""The form of a state machine: typed inputs in, effects out through one outbox.

A machine declares what it takes in (`inputs=`) and marks the method for each kind with `@on(Kind)`;
a kind without a handler, or with two, is a TypeError when the class is made. Handlers return
nothing: what they ask for is put into `self.out`, and whoever drives the machine empties that.
Time comes in as `now`, in microseconds; a timer is a value and comes back as it was set.

    class Ask(Control, frozen=True, tag="turn-ask"): ...
    class Retry(Timer, frozen=True): ...

    class Turns(Machine, inputs=Ask | Retry):
        @on(Ask)
        def give(self, ask: Ask, sender: str, now: int) -> None:
            self.out.send(sender, Turn())

        @on(Retry)
        def retry(self, timer: Retry, now: int) -> None:
            self.out.send(self.keeper, Ask())

A subclass that overrides a handler repeats its `@on`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, get_args

import msgspec

from unisono.core.effects import CancelTimer, Effect, Send, SetTimer, Store
from unisono.core.events import Control
from unisono.core.observations import Observation, Observed

Handler = TypeVar("Handler", bound=Callable[..., None])
_KINDS = "kinds"  # what a function is the handler of


def on(*kinds: type) -> Callable[[Handler], Handler]:
    """Marks the method that takes inputs of these kinds."""

    def mark(handler: Handler) -> Handler:
        handler.__dict__[_KINDS] = kinds
        return handler

    return mark


class Timer(msgspec.Struct, frozen=True, gc=False):
    """Base of timers. Setting one that is set moves it: equal values are one timer."""


class Outbox:
    """What a machine asks for, in order. Its driver takes it when a handler has returned."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def send(self, to: str, message: Control) -> None:
        self._effects.append(Send(to, message))

    def set_timer(self, timer: Timer, at_us: int) -> None:
        self._effects.append(SetTimer(timer, at_us))

    def cancel_timer(self, timer: Timer) -> None:
        self._effects.append(CancelTimer(timer))

    def store(self, key: str, value: bytes | None) -> None:
        self._effects.append(Store(key, value))

    def observe(self, observation: Observation) -> None:
        self._effects.append(Observed(observation))

    def do(self, effect: Effect) -> None:
        """Any other effect."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """The effects so far; none stay."""
        effects, self._effects = self._effects, []
        return effects


class Machine:
    """Base of state machines: the table of handlers, and the way to them."""

    handlers: ClassVar[dict[type, Callable[..., None]]] = {}

    def __init_subclass__(cls, inputs: Any = None) -> None:
        super().__init_subclass__()
        own = [
            (kind, handler)
            for handler in vars(cls).values()
            for kind in getattr(handler, "__dict__", {}).get(_KINDS, ())
        ]
        cls.handlers = cls.handlers | dict(own)
        if len(own) != len(dict(own)):
            raise TypeError(f"{cls.__name__}: two handlers of one kind")
        if inputs is not None:
            wanted = set(get_args(inputs) or (inputs,))
            if wrong := wanted ^ cls.handlers.keys():
                names = ", ".join(sorted(kind.__name__ for kind in wrong))
                raise TypeError(f"{cls.__name__}: no handler, or no such input: {names}")

    def __init__(self, out: Outbox) -> None:
        self.out = out

    def receive(self, message: Control, sender: str, now: int) -> None:
        """A message has come."""
        self.handlers[type(message)](self, message, sender, now)

    def fire(self, timer: Timer, now: int) -> None:
        """A timer is due."""
        self.handlers[type(timer)](self, timer, now)
