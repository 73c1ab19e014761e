"""What the log comes to: the last number given, the sessions that are open, the voters that left.

Every voter has this state of what is committed, and once more of its base. A leader also has it of
its whole log, with what is not committed yet: there it sees what to take.
"""

from __future__ import annotations

import msgspec

from unisono.core.events import Number
from unisono.qos.total_order.by_log.messages import Events, OpenSession, Presence, Said, Written
from unisono.raft.messages import NodeId

_ENCODER = msgspec.msgpack.Encoder()
_ENTRY: msgspec.msgpack.Decoder[Said] = msgspec.msgpack.Decoder(Said)


def encode(written: Written) -> bytes:
    return _ENCODER.encode(written)


def decode(data: bytes) -> Said:
    """What an entry says."""
    return _ENTRY.decode(data)


class Session(msgspec.Struct, array_like=True, gc=False):
    """A publisher in one of its lives."""

    node: NodeId
    life: Number
    last: Number = 0  # of its events


class _Kept(msgspec.Struct, array_like=True):
    number: Number
    sessions: dict[Number, Session]
    gone: tuple[NodeId, ...]


_KEPT = msgspec.msgpack.Decoder(_Kept)


class State:
    """Up to some entry of the log."""

    def __init__(self, kept: bytes = b"") -> None:
        found = _KEPT.decode(kept) if kept else _Kept(0, {}, ())
        self.number = found.number  # the last given
        self.sessions = found.sessions  # by the index of the entry that opened it
        self.gone = set(found.gone)  # voters that left
        self._of = {session.node: at for at, session in self.sessions.items()}

    def encode(self) -> bytes:
        return _ENCODER.encode(_Kept(self.number, self.sessions, tuple(sorted(self.gone))))

    def open_of(self, node: str) -> int | None:
        """The open session of this process."""
        return self._of.get(node)

    def apply(self, index: int, written: Said) -> None:
        """One more entry."""
        if isinstance(written, Events):
            session = self.sessions[written.session]
            assert written.first == session.last + 1, (index, written.first, session)
            session.last = written.last
            self.number += len(written.events)
        elif isinstance(written, OpenSession):
            before = self._of.get(written.node)
            if before is not None:
                if self.sessions[before].life >= written.life:
                    return  # it came after a later life
                self._close(before)
            self.sessions[index] = Session(written.node, written.life)
            self._of[written.node] = index
        elif isinstance(written, Presence):
            (self.gone.discard if written.here else self.gone.add)(written.node)
        elif written.session in self.sessions:
            self._close(written.session)

    def _close(self, session: int) -> None:
        del self._of[self.sessions.pop(session).node]
