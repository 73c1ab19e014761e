"""What a process notices in its domain."""

from __future__ import annotations

from typing import ClassVar

from unisono.core.observations import Observation


class Malformed(Observation, frozen=True):
    """A message whose parts do not belong together. It changes nothing."""

    table: ClassVar[str] = "faults"
    kind: ClassVar[str] = "malformed message"
    warns: ClassVar[bool] = True
    what: str

    @property
    def sentence(self) -> str:
        return self.what


class Skipped(Observation, frozen=True):
    """Numbers that nobody had any more."""

    table: ClassVar[str] = "faults"
    kind: ClassVar[str] = "skipped"
    warns: ClassVar[bool] = True
    numbers: int
    upto: int

    @property
    def sentence(self) -> str:
        return f"{self.numbers} events up to number {self.upto} are missing: no voter has them"


class FollowsLeader(Observation, frozen=True):
    """Another process leads."""

    kind: ClassVar[str] = "leader"
    leader: str
    term: int

    @property
    def sentence(self) -> str:
        return f"{self.leader}, term {self.term}"


class VotersChange(Observation, frozen=True):
    """The leader has other processes vote."""

    kind: ClassVar[str] = "voters"
    voters: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return ", ".join(self.voters)


class NoLeader(Observation, frozen=True):
    """Nothing is heard of a leader."""

    table: ClassVar[str] = "faults"
    kind: ClassVar[str] = "no leader"
    warns: ClassVar[bool] = True
    seconds: float
    voters: tuple[str, ...]

    @property
    def sentence(self) -> str:
        voters = ", ".join(self.voters)
        return (
            f"nothing was heard of a leader for {self.seconds:.1f} s; the log goes on when a "
            f"majority of {voters} is there"
        )
