"""What a voter notices."""

from __future__ import annotations

from typing import ClassVar

from unisono.core.observations import Observation


class LeaderElected(Observation, frozen=True):
    """This voter leads."""

    kind: ClassVar[str] = "leader"
    term: int

    @property
    def sentence(self) -> str:
        return f"term {self.term}"


class SteppedDown(Observation, frozen=True):
    """This voter leads no more."""

    kind: ClassVar[str] = "stepped down"
    term: int
    now_in: int

    @property
    def sentence(self) -> str:
        if self.now_in == self.term:
            return f"term {self.term}: no majority of the voters is heard"
        return f"term {self.term}: there is term {self.now_in}"


class MessageRefused(Observation, frozen=True):
    """A message that cannot come from a voter in order. It changes nothing."""

    table: ClassVar[str] = "faults"
    kind: ClassVar[str] = "raft message refused"
    warns: ClassVar[bool] = True
    sender: str
    reason: str

    @property
    def sentence(self) -> str:
        return f"from {self.sender}: {self.reason}"


class OtherLog(Observation, frozen=True):
    """A message of another log. It changes nothing."""

    table: ClassVar[str] = "faults"
    kind: ClassVar[str] = "message of another log"
    warns: ClassVar[bool] = True
    sender: str
    log: str
    mine: str

    @property
    def sentence(self) -> str:
        return f"{self.sender} is in log {self.log}, this process in {self.mine}"
