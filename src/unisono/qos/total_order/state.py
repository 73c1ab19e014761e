"""What a topic manager knows: all that its copies agree on, and that moves with it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from unisono.qos.total_order.messages import Closing, Drain, FillStamp, Relate, RequestStamp


class Epoch(msgspec.Struct):
    """The way of stamps under one topic order."""

    number: int = 0
    final: int = -1  # the last number given in it, once closed
    group: dict[str, int] = {}  # related topics above, upwards -> numbers above this pass by them
    bases: dict[str, int] = {}  # related topics below -> numbers above this pass by here
    announced: list[str] = []  # related topics below whose base is not known yet
    passed: dict[str, int] = {}  # as bases -> highest number that has passed, or the base
    news: dict[str, int] = {}  # those of `passed` that the next stamp of this topic tells
    held: dict[str, dict[int, FillStamp]] = {}  # lower topic -> number -> stamp that waits
    kept: dict[str, dict[int, FillStamp]] = {}  # lower topic -> number -> stamp as it went on


class ManagerState(msgspec.Struct):
    """All that the copies of a manager agree on."""

    topic: str
    number: int = 0
    freed: list[int] = []  # stamps that publishers have, to be told with the next one
    epoch: Epoch = msgspec.field(default_factory=Epoch)
    old: dict[int, Epoch] = {}  # closed epochs whose stamps may be on their way
    closing: Closing | None = None  # how the epoch before ended
    turns: dict[str, int] = {}  # publisher -> last request taken
    early: dict[str, dict[int, RequestStamp]] = {}  # publisher -> turn -> request before its turn
    own: dict[int, FillStamp] = {}  # number -> stamp of this topic whose publisher may not have it
    unfinished: dict[str, dict[int, int]] = {}  # publisher -> turn -> number, of those
    sets: list[list[str]] = []  # subscriptions with this as the lowest topic: the others; maximal
    relating: list[Relate] = []  # one at a time; the first is under way
    union: list[str] = []  # the group that the first one will lead to, upwards
    answers: list[str] = []  # topics whose answer the first one still waits for
    op: str = ""  # the first one's name in what this manager asks
    ops: int = 0
    base: int = -1  # what the first one has told the new members; -1: that they will hear it
    telling: bool = False  # the first one is past relating the topics above
    draining: list[str] = []  # old members that the first one's earlier events must pass
    drains: list[Drain] = []  # questions of lower topics that cannot be answered yet

    @property
    def untouched(self) -> bool:
        """Nobody has used the topic, though a subscription may name it."""
        epoch = self.epoch
        return not (self.number or self.closing or epoch.group or epoch.passed)

    def note(self, group: Iterable[str]) -> None:
        """A subscription that holds this topic and these above: for when the order changes."""
        new = set(group)
        if not any(new <= set(known) for known in self.sets):
            self.sets = [known for known in self.sets if not new >= set(known)]
            self.sets.append(sorted(new))
