"""What a node keeps over a restart: a table of keys and values in an SQLite file.

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

_NODE_ID = "node-id"
_FILE = "node.sqlite"


class Disk:
    """The store of one node. Not for two processes at a time."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(folder / _FILE, isolation_level=None, timeout=0)
            execute = self._connection.execute
            execute("PRAGMA locking_mode = EXCLUSIVE")
            execute("PRAGMA journal_mode = WAL")
            execute("PRAGMA synchronous = FULL")
            execute("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL)")
            execute("BEGIN IMMEDIATE")
            execute("COMMIT")
        except (OSError, sqlite3.DatabaseError) as error:
            raise BadInput(f"cannot keep state in {folder}: {error}") from None

    def load(self) -> dict[str, bytes]:
        """Everything kept, the node's id apart."""
        rows = self._connection.execute("SELECT key, value FROM kept WHERE key != ?", (_NODE_ID,))
        return dict(rows.fetchall())

    def node_id(self, fresh: str) -> str:
        """The id under which this state was kept; the fresh one for a new folder."""
        query = "SELECT value FROM kept WHERE key = ?"
        row = self._connection.execute(query, (_NODE_ID,)).fetchone()
        if row is not None:
            return bytes(row[0]).decode()
        self.write([Store(_NODE_ID, fresh.encode())])
        return fresh

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
