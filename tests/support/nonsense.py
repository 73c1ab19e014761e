"""Messages of a mesh that decode and make no sense: of any type, drawn from a few words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

from unisono.ens.scribe.messages import MESSAGES, Message

_LENGTHS = (0, 1, 1, 2, 3)


def nonsense(rng: Random, words: Sequence[str]) -> Message:
    """One of any kind."""
    message: Message = _drawn(rng, rng.choice(MESSAGES), words, ())
    return message


def _drawn(rng: Random, kind: Any, words: Sequence[str], bounds: Sequence[Meta]) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _drawn(rng, parts[0], words, [x for x in parts[1:] if isinstance(x, Meta)])
    if origin in (Union, UnionType):
        return _drawn(rng, rng.choice(parts), words, ())
    if origin is tuple and parts[-1] is Ellipsis:
        least = max((bound.min_length or 0 for bound in bounds), default=0)
        length = max(least, rng.choice(_LENGTHS))
        return tuple(_drawn(rng, parts[0], words, ()) for _ in range(length))
    if origin is tuple:
        return tuple(_drawn(rng, part, words, ()) for part in parts)
    if kind is int:
        return _number(rng, bounds)
    simple: dict[Any, Callable[[], Any]] = {
        str: lambda: rng.choice(words),
        bool: lambda: rng.random() < 0.5,
        bytes: lambda: rng.randbytes(rng.randrange(4)),
        NoneType: lambda: None,
    }
    if kind in simple:
        return simple[kind]()
    hints = get_type_hints(kind, include_extras=True)
    return kind(*(_drawn(rng, hints[field], words, ()) for field in kind.__struct_fields__))


def _number(rng: Random, bounds: Sequence[Meta]) -> int:
    least, most = -(1 << 63), (1 << 64) - 1
    for bound in bounds:
        least = least if bound.ge is None else int(bound.ge)
        most = most if bound.le is None else int(bound.le)
        most = most if bound.lt is None else int(bound.lt) - 1
    usual = [n for n in (0, 1, 2, 3, 1000, 1 << 20) if least <= n <= most]
    return rng.choice([*usual, *usual, least, most, rng.randint(least, most)])
