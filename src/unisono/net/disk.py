"""What a node keeps over a restart: a table of keys and values in an SQLite file, and its logs.

One transaction per call, synced before it returns, so that nothing is told to others that a crash
could undo. The node's id lies there too: with its disk a restarted process is the same member;
without it, it is a new one. A lock keeps two processes off one folder.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from unisono.core.effects import Store
from unisono.errors import BadInput, EnvironmentLacks
from unisono.segments.store import Store as LogStore

_NODE_ID = "node-id"
_LIFE = "life"
_QUERY = "SELECT value FROM kept WHERE key = ?"
_FILE = "node.sqlite"
_FORMAT = 2  # of what managers and views keep; changes with their messages


class Disk:
    """The store of one node. Not for two processes at a time."""

    def __init__(self, folder: Path, domains: Sequence[str] = ()) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(folder / _FILE, isolation_level=None, timeout=0)
            execute = self._connection.execute
            execute("PRAGMA locking_mode = EXCLUSIVE")
            execute("PRAGMA journal_mode = WAL")
            execute("PRAGMA synchronous = FULL")
            execute("BEGIN IMMEDIATE")
            if not execute("SELECT 1 FROM sqlite_master WHERE name = 'kept'").fetchone():
                execute("CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL)")
                execute(f"PRAGMA user_version = {_FORMAT}")
            execute("COMMIT")
            (found,) = execute("PRAGMA user_version").fetchone()
        except (OSError, sqlite3.DatabaseError) as error:
            raise BadInput(f"cannot keep state in {folder}: {error}") from None
        if found != _FORMAT:
            self._connection.close()
            raise BadInput(
                f"the state in {folder} is of another version of Unisono ({found}, not {_FORMAT}); "
                "use that one, or a new folder"
            )

        self.logs = {name: LogStore(folder / f"log-{name}") for name in domains}
        self.loaded = {name: log.load() for name, log in self.logs.items()}

    def load(self) -> dict[str, bytes]:
        """Everything kept, but for the node's id and its lives."""
        query = "SELECT key, value FROM kept WHERE key NOT IN (?, ?)"
        rows = self._connection.execute(query, (_NODE_ID, _LIFE))
        return dict(rows.fetchall())

    def node_id(self, fresh: str) -> str:
        """The id under which this state was kept; the fresh one for a new folder."""
        row = self._connection.execute(_QUERY, (_NODE_ID,)).fetchone()
        if row is not None:
            return bytes(row[0]).decode()
        self.write([Store(_NODE_ID, fresh.encode())])
        return fresh

    def life(self) -> int:
        """How many times a process has begun with this folder before; counts this one."""
        row = self._connection.execute(_QUERY, (_LIFE,)).fetchone()
        before = int(row[0]) if row is not None else 0
        self.write([Store(_LIFE, str(before + 1).encode())])
        return before

    def write(self, stores: Sequence[Store]) -> None:
        """Carry out these effects; on disk when this returns."""
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            for store in stores:
                if store.value is None:
                    execute("DELETE FROM kept WHERE key = ?", (store.key,))
                else:
                    execute("REPLACE INTO kept VALUES (?, ?)", (store.key, store.value))
            execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise EnvironmentLacks(f"the node's state cannot be kept: {error}") from None

    def close(self) -> None:
        self._connection.close()
