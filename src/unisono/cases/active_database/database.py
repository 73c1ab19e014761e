"""One SQLite database that can undo its latest transactions.

How it rolls back: an undo log. For every table a trigger writes down, with each row that is
inserted, changed or deleted, the statement that puts it back; undoing runs these in reverse. The
log is an ordinary table, written in the same SQLite transaction as the change, so a database file
holds both or neither. Why not savepoints: they nest, so the oldest could not be made final while
younger ones may still be undone, and nothing of an open savepoint is on disk. Why not snapshots:
their cost is the size of the database, not of the change. The log is bounded: `forget` makes all
but the latest transactions final.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable

import msgspec

from unisono.cases.active_database.schema import CATEGORY_TABLES, SCHEMA, TABLES
from unisono.cases.active_database.transactions import Statement
from unisono.errors import BadInput

IN_MEMORY = ":memory:"

_LOG = """
CREATE TABLE undo_log (number INTEGER PRIMARY KEY, statement TEXT NOT NULL);
CREATE TABLE applied (turn INTEGER PRIMARY KEY, event TEXT NOT NULL, first INTEGER NOT NULL);
"""


class Database:
    """A stack of applied transactions: apply on top, undo from the top."""

    def __init__(self, path: str = IN_MEMORY) -> None:
        """In memory, or in a new file."""
        try:
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._run = self._connection.execute
            tables = self._run("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.Error as error:
            raise BadInput(f"cannot open a database at {path}: {error}") from None
        if tables:
            self._connection.close()
            raise BadInput(f"{path} is not empty; a replica starts with a new file")
        self._connection.executescript(SCHEMA + _LOG)
        for table in TABLES:
            self._connection.executescript(_undo_triggers(table, self._columns(table)))
        self.applied = 0  # transactions ever applied, less those undone
        self.undone = 0
        self._final = 0  # of the applied ones, how many cannot be undone any more

    def apply(self, event_id: str, statements: Iterable[Statement]) -> None:
        """One transaction: all of it or, if a statement fails, nothing."""
        run = self._run
        run("BEGIN")
        try:
            run(
                "INSERT INTO applied VALUES "
                "(?, ?, ifnull((SELECT max(number) FROM undo_log), 0) + 1)",
                (self.applied + 1, event_id),
            )
            for sql, values in statements:
                run(sql, values)
        except BaseException:
            run("ROLLBACK")
            raise
        run("COMMIT")
        self.applied += 1

    def undo(self, count: int) -> None:
        """Put everything back to how it was before the latest `count` transactions."""
        if count == 0:
            return
        assert count <= self.applied - self._final, "these transactions are final"
        run = self._run
        target = self.applied - count
        first = run("SELECT first FROM applied WHERE turn = ?", (target + 1,)).fetchone()[0]
        run("BEGIN")
        try:
            run("UPDATE undoing SET yes = 1")
            query = "SELECT statement FROM undo_log WHERE number >= ? ORDER BY number DESC"
            for (statement,) in run(query, (first,)).fetchall():
                run(statement)
            run("DELETE FROM undo_log WHERE number >= ?", (first,))
            run("DELETE FROM applied WHERE turn > ?", (target,))
            run("UPDATE undoing SET yes = 0")
        except BaseException:
            run("ROLLBACK")
            raise
        run("COMMIT")
        self.applied = target
        self.undone += count

    def forget(self, final: int) -> None:
        """The first `final` transactions will not be undone any more."""
        if final <= self._final:
            return
        assert final <= self.applied
        run = self._run
        row = run("SELECT first FROM applied WHERE turn = ?", (final + 1,)).fetchone()
        run("BEGIN")
        if row is None:
            run("DELETE FROM undo_log")
        else:
            run("DELETE FROM undo_log WHERE number < ?", row)
        run("DELETE FROM applied WHERE turn <= ?", (final,))
        run("COMMIT")
        self._final = final

    @property
    def log_rows(self) -> int:
        return int(self._run("SELECT count(*) FROM undo_log").fetchone()[0])

    def rows(self, table: str) -> list[tuple[object, ...]]:
        """A table in the order of its key."""
        assert table in TABLES
        keys = self._columns(table, keys_only=True)
        return self._run(f"SELECT * FROM {table} ORDER BY {', '.join(keys)}").fetchall()

    def _columns(self, table: str, keys_only: bool = False) -> list[str]:
        rows = self._run(f"PRAGMA table_info({table})").fetchall()
        return [row[1] for row in rows if row[5] or not keys_only]

    def sha256(self, category: str | None = None) -> str:
        """A digest of the contents: every table in the order of its key, or one category's rows."""
        dump: list[object] = []
        for table in TABLES if category is None else CATEGORY_TABLES:
            rows = self.rows(table)
            if category is not None:
                rows = [row for row in rows if category in row]
            dump.append((table, rows))
        return hashlib.sha256(msgspec.msgpack.encode(dump)).hexdigest()

    def close(self) -> None:
        self._connection.close()


def _undo_triggers(table: str, columns: list[str]) -> str:
    """For each kind of change, a trigger that writes the statement that puts it back."""
    active = "(SELECT yes FROM undoing) = 0"
    old = " || ',' || ".join(f"quote(old.{column})" for column in columns)
    back = " || ',' || ".join(f"'{column}=' || quote(old.{column})" for column in columns)
    undo = {
        "INSERT": f"'DELETE FROM {table} WHERE rowid=' || new.rowid",
        "UPDATE": f"'UPDATE {table} SET ' || {back} || ' WHERE rowid=' || old.rowid",
        "DELETE": f"'INSERT INTO {table} (rowid,{','.join(columns)}) VALUES (' || "
        f"old.rowid || ',' || {old} || ')'",
    }
    return "\n".join(
        f"CREATE TRIGGER undo_{table}_{kind} AFTER {kind} ON {table} WHEN {active} BEGIN "
        f"INSERT INTO undo_log (statement) VALUES ({statement}); END;"
        for kind, statement in undo.items()
    )
