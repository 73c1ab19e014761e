"""A recorder to Parquet parts through Arrow. Memory is bounded: a long run streams to disk.

`<folder>/<table>/<writer>-<part>.parquet`. A part appears under its name only when it is complete,
so a trace can be read at any time and a killed process loses at most the rows not yet written.
Subscriptions are few and change when they end: their part is rewritten whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from unisono.errors import EnvironmentLacks
from unisono.trace import schema
from unisono.trace.memory import Row, subscription_key

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:  # the default install is small
    pa = pq = None


def arrow_schema(table: str) -> Any:
    """The Arrow schema of a table."""
    types = {"string": pa.string(), "int64": pa.int64()}
    return pa.schema(
        [pa.field(c.name, types[c.type], nullable=c.nullable) for c in schema.TABLES[table]]
    )


class ParquetRecorder:
    """Records the rows of one process; several may share a folder under different writer names."""

    def __init__(self, folder: Path, writer: str, rows_in_memory: int = 1 << 16) -> None:
        if pa is None:
            raise EnvironmentLacks("recording a trace needs pyarrow: pip install 'unisono[trace]'")
        self._folder = Path(folder)
        self._writer = writer
        self._limit = rows_in_memory
        self._rows: dict[str, list[Row]] = {table: [] for table in schema.TABLES}
        self._subscriptions: dict[tuple[str, str, int], Row] = {}
        self._held = 0
        self._changed = False  # a subscription began or ended
        self._parts = 0
        for table in (schema.PUBLICATIONS, schema.DELIVERIES):
            (self._folder / table).mkdir(parents=True, exist_ok=True)

    def record(self, table: str, row: Row) -> None:
        if table == schema.SUBSCRIPTIONS:
            self._subscriptions[subscription_key(row)] = row
            self._changed = True
            return
        self._rows[table].append(row)
        self._held += 1
        if self._held >= self._limit:
            self.flush()

    def flush(self) -> None:
        """Write everything recorded so far."""
        if not self._held and not self._changed:
            return
        self._parts += 1
        for table, rows in self._rows.items():
            if rows:
                self._write(table, rows, f"{self._writer}-{self._parts:06d}")
                rows.clear()
        if self._changed:
            rows = list(self._subscriptions.values())
            self._write(schema.SUBSCRIPTIONS, rows, self._writer)
        self._held = 0
        self._changed = False

    def close(self) -> None:
        self.flush()
        for table in (schema.PUBLICATIONS, schema.DELIVERIES):
            if not any((self._folder / table).glob("*.parquet")):
                self._write(table, [], f"{self._writer}-empty")

    def _write(self, table: str, rows: list[Row], name: str) -> None:
        folder = self._folder / table
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{name}.parquet"
        unfinished = folder / f"_{name}.unfinished"
        columns = arrow_schema(table)
        data = {column: [row[column] for row in rows] for column in columns.names}
        pq.write_table(pa.table(data, schema=columns), unfinished)
        os.replace(unfinished, target)


def write_tables(folder: Path, tables: dict[str, list[Row]], writer: str = "sim") -> None:
    """Write the tables of a finished run at once."""
    recorder = ParquetRecorder(folder, writer, rows_in_memory=1 << 62)
    for table, rows in tables.items():
        for row in rows:
            recorder.record(table, row)
    recorder.close()
