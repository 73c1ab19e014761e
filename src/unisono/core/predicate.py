"""Subscriptions by content: a small language over the attributes of events.

    symbol == 'IBM' and change > 0.5
    not (urgent == true) or region in ('eu', "us")
    exists host and host prefix 'db-'

Comparisons are == != < <= > >= between an attribute and a literal: a string in quotes (\\\\ and the
quote are escaped by a backslash), a number, true or false. `in` takes a list of literals, `prefix`
a string; `exists` asks for the attribute alone. `not` binds closer than `and`, `and` than `or`.

An attribute that an event lacks, or that is of another type than the literal, makes a comparison
neither true nor false: it does not match, and its opposite does not either (as in SQL). Whole
numbers and others are of one type. Nothing is ever evaluated as Python.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from unisono.errors import BadInput

Value = str | int | float | bool
Attributes = Mapping[str, Value]
# Whether an event may have this attribute, with this value if one is given.
Has = Callable[[str, Value | None], bool]

LENGTH_MAX = 4096
DEPTH_MAX = 50
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<sign>==|!=|<=|>=|<|>|\(|\)|,)
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_WORDS = frozenset({"and", "or", "not", "in", "prefix", "exists", "true", "false"})
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class BadPredicate(BadInput):
    """A predicate that is refused; `position` is where the fault is, from 0."""

    def __init__(self, text: str, position: int, fault: str) -> None:
        shown = text if len(text) <= 200 else text[:200] + "..."
        super().__init__(f"{fault}, at position {position} of the predicate {shown!r}")
        self.position = position


class Predicate:
    """What a subscription asks of events. Made by `parse`."""

    def __init__(self, text: str, root: Part) -> None:
        self.text = text
        self._root = root

    def matches(self, attributes: Attributes) -> bool:
        return self._root.judge(attributes) is True

    def possible(self, has: Has) -> bool:
        """False only if no event of which `has` speaks can match."""
        return self._root.possible(has, True)

    def __repr__(self) -> str:
        return f"Predicate({self.text!r})"


class Filters(dict[str, Predicate]):
    """Predicates by topic, as the application last chose them."""

    def narrow(self, topics: Sequence[str], where: Predicate | None) -> None:
        """Of these topics only what matches is wanted; None: everything."""
        for topic in topics:
            if where is None:
                self.pop(topic, None)
            else:
                self[topic] = where


def parse(text: str) -> Predicate:
    """The predicate, or BadPredicate that says where the fault is."""
    if not isinstance(text, str):
        raise BadPredicate("", 0, f"a predicate is a string, not {type(text).__name__}")
    if len(text) > LENGTH_MAX:
        raise BadPredicate(text, LENGTH_MAX, f"more than {LENGTH_MAX} characters")
    return Predicate(text, _Parser(text).whole())


# What a predicate is made of. `judge`: true, false, or None where that is not known.


class Part(ABC):
    """Base of the parts."""

    @abstractmethod
    def judge(self, attributes: Attributes) -> bool | None: ...

    @abstractmethod
    def possible(self, has: Has, wanted: bool) -> bool:
        """Whether this may be true, or with wanted=False false."""


class Compare(Part):
    """An attribute beside a literal."""

    def __init__(self, name: str, sign: str, value: Value) -> None:
        self._name, self._sign, self._value = name, sign, value
        self._compare = _COMPARED[sign]
        self._kind = kind_of(value)

    def judge(self, attributes: Attributes) -> bool | None:
        found = attributes.get(self._name)
        if found is None or kind_of(found) is not self._kind:
            return None
        if self._kind is bool and self._sign not in ("==", "!="):
            return None
        return self._compare(found, self._value)

    def possible(self, has: Has, wanted: bool) -> bool:
        exact = self._sign == ("==" if wanted else "!=")
        return has(self._name, self._value if exact else None)


class Among(Part):
    """An attribute in a list."""

    def __init__(self, name: str, values: list[Value]) -> None:
        self._name, self._values = name, values
        self._kinds = {kind_of(value) for value in values}

    def judge(self, attributes: Attributes) -> bool | None:
        found = attributes.get(self._name)
        if found is None or kind_of(found) not in self._kinds:
            return None
        return any(kind_of(v) is kind_of(found) and v == found for v in self._values)

    def possible(self, has: Has, wanted: bool) -> bool:
        if not wanted:
            return has(self._name, None)
        return any(has(self._name, value) for value in self._values)


class Prefix(Part):
    """A string that begins so."""

    def __init__(self, name: str, begin: str) -> None:
        self._name, self._begin = name, begin

    def judge(self, attributes: Attributes) -> bool | None:
        found = attributes.get(self._name)
        return found.startswith(self._begin) if isinstance(found, str) else None

    def possible(self, has: Has, wanted: bool) -> bool:
        return has(self._name, None)


class Exists(Part):
    """An attribute, whatever it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def judge(self, attributes: Attributes) -> bool | None:
        return self._name in attributes

    def possible(self, has: Has, wanted: bool) -> bool:
        return not wanted or has(self._name, None)


class Opposite(Part):
    def __init__(self, part: Part) -> None:
        self._part = part

    def judge(self, attributes: Attributes) -> bool | None:
        judged = self._part.judge(attributes)
        return None if judged is None else not judged

    def possible(self, has: Has, wanted: bool) -> bool:
        return self._part.possible(has, not wanted)


class Joined(Part):
    """Parts with `and` between them (deciding = False), or `or` (True)."""

    def __init__(self, deciding: bool, parts: list[Part]) -> None:
        self._deciding, self._parts = deciding, parts

    def judge(self, attributes: Attributes) -> bool | None:
        unknown = False
        for part in self._parts:
            judged = part.judge(attributes)
            if judged is self._deciding:
                return judged
            unknown = unknown or judged is None
        return None if unknown else not self._deciding

    def possible(self, has: Has, wanted: bool) -> bool:
        some = any if wanted is self._deciding else all
        return some(part.possible(has, wanted) for part in self._parts)


def kind_of(value: Value) -> type:
    """bool, str, or float for all numbers."""
    if isinstance(value, bool):
        return bool
    return str if isinstance(value, str) else float


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._next = self._read(0)

    def whole(self) -> Part:
        found = self._any()
        if self._next.kind != "end":
            raise self._wrong("and, or, or the end expected")
        return found

    def _read(self, at: int) -> _Token:
        found = _TOKEN.match(self._text, at)
        if found is None or found.lastgroup is None:
            rest = self._text[at:]
            at += len(rest) - len(rest.lstrip(" \t\n\r\f\v"))
            fault = "a string without its end" if self._text[at] in "'\"" else "not understood"
            raise BadPredicate(self._text, at, f"{self._text[at]!r} is {fault}")
        kind = found.lastgroup
        return _Token(kind, found.group(kind), found.start(kind))

    def _wrong(self, fault: str) -> BadPredicate:
        found = repr(self._next.text) if self._next.text else "the end"
        return BadPredicate(self._text, self._next.at, f"{fault}, not {found}")

    def _take(self) -> _Token:
        taken = self._next
        if taken.kind != "end":
            self._next = self._read(taken.at + len(taken.text))
        return taken

    def _word(self, *words: str) -> bool:
        """Take the next token if it is one of these."""
        if self._next.kind in ("word", "sign") and self._next.text in words:
            self._take()
            return True
        return False

    def _any(self) -> Part:
        parts = [self._all()]
        while self._word("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else Joined(True, parts)

    def _all(self) -> Part:
        parts = [self._one()]
        while self._word("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Joined(False, parts)

    def _one(self) -> Part:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadPredicate(self._text, self._next.at, f"nested more than {DEPTH_MAX} deep")
        found = self._part()
        self._depth -= 1
        return found

    def _part(self) -> Part:
        if self._word("not"):
            return Opposite(self._one())
        if self._word("("):
            found = self._any()
            if not self._word(")"):
                raise self._wrong("')' expected")
            return found
        if self._word("exists"):
            return Exists(self._name())
        return self._compared(self._name())

    def _name(self) -> str:
        if self._next.kind != "word" or self._next.text in _WORDS:
            raise self._wrong("an attribute expected")
        return self._take().text

    def _compared(self, name: str) -> Part:
        if self._word("prefix"):
            if self._next.kind != "string":
                raise self._wrong("a string in quotes expected")
            return Prefix(name, str(self._literal()))
        if self._word("in"):
            return Among(name, self._list())
        if self._word("not"):
            if not self._word("in"):
                raise self._wrong("in expected")
            return Opposite(Among(name, self._list()))
        sign = self._next.text
        if self._next.kind != "sign" or sign not in _COMPARED:
            raise self._wrong("a comparison, in or prefix expected")
        self._take()
        at = self._next.at
        value = self._literal()
        if isinstance(value, bool) and sign not in ("==", "!="):
            raise BadPredicate(self._text, at, "true and false are compared by == and != only")
        return Compare(name, sign, value)

    def _list(self) -> list[Value]:
        if not self._word("("):
            raise self._wrong("'(' expected")
        values = [self._literal()]
        while self._word(","):
            values.append(self._literal())
        if not self._word(")"):
            raise self._wrong("',' or ')' expected")
        return values

    def _literal(self) -> Value:
        kind, text, at = self._next
        if kind == "string":
            self._take()
            return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
        if kind == "number":
            self._take()
            if re.fullmatch(r"[+-]?\d+", text):
                if len(text) > 30:
                    raise BadPredicate(self._text, at, "a number of more than 30 digits")
                return int(text)
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise BadPredicate(self._text, at, "a number that is too large")
            return value
        if kind == "word" and text in ("true", "false"):
            self._take()
            return text == "true"
        raise self._wrong("a string in quotes, a number, true or false expected")
