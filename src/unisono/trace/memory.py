"""A recorder to memory, with a digest of all rows, for the simulator and for tests."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import msgspec

from unisono.trace import schema

Row = dict[str, Any]


class Recorder(Protocol):
    """What drivers write the trace to."""

    def record(self, table: str, row: Row) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class NullRecorder:
    """Records nothing."""

    def record(self, table: str, row: Row) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def subscription_key(row: Row) -> tuple[str, str, int]:
    """A subscription's row is written when it begins and again when it ends."""
    return (row["subscriber"], row["topic"], row["from_us"])


class MemoryRecorder:
    """Keeps every row; `sha256` is a digest of them in the order recorded."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {table: [] for table in schema.TABLES}
        self._subscriptions: dict[tuple[str, str, int], Row] = {}
        self._hash = hashlib.sha256()
        self._encoder = msgspec.msgpack.Encoder()

    def record(self, table: str, row: Row) -> None:
        self._hash.update(self._encoder.encode((table, tuple(row.values()))))
        if table == schema.SUBSCRIPTIONS:
            key = subscription_key(row)
            if key in self._subscriptions:
                self._subscriptions[key].update(row)
                return
            self._subscriptions[key] = row
        self.tables[table].append(row)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
