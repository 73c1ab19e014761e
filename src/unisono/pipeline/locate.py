"""Finds the files of a trace's tables and refuses what names, headers and footers give away.

All of it happens before Spark reads a row: a missing table or column, a wrong type, an unknown
kind of file. Parts that are read in the same way are grouped, so that parts of one table may
differ in format and in optional columns.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from unisono.errors import UNDECODABLE, BadInput
from unisono.trace.schema import DELIVERIES, PUBLICATIONS, SUBSCRIPTIONS, TABLES, Column

Format = Literal["parquet", "csv", "ndjson"]
SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
}

# The columns that the audit reads; others, ours or foreign, are left alone.
USED: dict[str, tuple[Column, ...]] = {
    table: tuple(column for column in TABLES[table] if column.name != "size")
    for table in (PUBLICATIONS, DELIVERIES, SUBSCRIPTIONS)
}


class Parts(NamedTuple):
    """Files of one table that are read in the same way."""

    format: Format
    columns: tuple[str, ...]
    files: tuple[Path, ...]


def check_folder(path: Path) -> int:
    """Refuse what is no folder; returns how many bytes its files have."""
    if not path.exists():
        raise BadInput(f"{path}: no such folder")
    if not path.is_dir():
        raise BadInput(f"{path}: a trace is a folder of tables, this is a file")
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def find_parts(folder: Path, name: str) -> tuple[Parts, ...]:
    """The files of a table, checked and grouped; none if the table is not there."""
    return group_parts(find_files(folder, name), name)


def find_files(folder: Path, name: str) -> list[Path]:
    """The files of a table by their names alone; none if the table is not there."""
    places = [folder / name, *(folder / f"{name}{suffix}" for suffix in SUFFIXES)]
    found = [place for place in places if place.exists()]
    if not found:
        return []
    if len(found) > 1:
        both = " and ".join(place.name for place in found[:2])
        raise BadInput(f"{folder}: table {name} is there twice: {both}")
    return _files(found[0])


def group_parts(files: Sequence[Path], name: str) -> tuple[Parts, ...]:
    """The files checked, and grouped by how they are read."""
    groups: dict[tuple[Format, tuple[str, ...]], list[Path]] = {}
    for file in files:
        format_ = SUFFIXES[file.suffix]
        groups.setdefault((format_, _columns(file, format_, name)), []).append(file)
    return tuple(Parts(*key, tuple(same)) for key, same in groups.items())


def _files(place: Path) -> list[Path]:
    """The part files of a table, in the order of their names."""
    if place.is_file():
        if place.suffix not in SUFFIXES:
            raise BadInput(f"{place}: expected a folder of parts, or a name with an ending")
        return [place]
    files = sorted(
        file
        for file in place.rglob("*")
        if file.is_file() and not any(p[0] in "._" for p in file.relative_to(place).parts)
    )
    strange = [file for file in files if file.suffix not in SUFFIXES]
    if strange:
        raise BadInput(f"{strange[0]}: not one of {', '.join(SUFFIXES)}")
    if not files:
        raise BadInput(f"{place}: the folder holds no part files")
    return files


def _columns(file: Path, format_: Format, table: str) -> tuple[str, ...]:
    """The usable columns of one file, after checking that the required ones are there."""
    empty: tuple[str, ...] = ()  # there, but without any value and so without a type
    try:
        if format_ == "parquet":
            columns, empty = _parquet_columns(file, table)
        elif format_ == "csv":
            with file.open(newline="", encoding="utf-8-sig") as lines:
                columns = tuple(next(csv.reader(lines), ()))
        else:
            columns = _ndjson_columns(file, table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{file}: cannot be read as {format_}: {error}") from error
    have = {*columns, *empty}
    missing = [spec.name for spec in USED[table] if spec.required and spec.name not in have]
    if missing:
        raise BadInput(
            f"{file}: no column {missing[0]}; table {table} needs "
            f"{', '.join(spec.name for spec in USED[table] if spec.required)}"
        )
    if len(set(columns)) < len(columns):
        raise BadInput(f"{file}: two columns have the same name")
    return columns


def _parquet_columns(file: Path, table: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The used columns that have the right type, and those that hold nulls only."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import types as is_

    try:
        schema = pq.read_schema(file)
    except pa.ArrowException as error:
        raise BadInput(f"{file}: not a Parquet file: {error}") from error
    usable, empty = [], []
    for spec in USED[table]:
        if schema.get_field_index(spec.name) < 0:
            continue
        found = schema.field(spec.name).type
        kind = found.value_type if is_.is_dictionary(found) else found
        if spec.type == "int64":
            right = is_.is_integer(kind) and not is_.is_uint64(kind)
        else:
            right = is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind)
        if is_.is_null(kind) and spec.nullable:
            empty.append(spec.name)
        elif right:
            usable.append(spec.name)
        else:
            raise BadInput(f"{file}: column {spec.name} is {found}, expected {spec.type}")
    return tuple(usable), tuple(empty)


def _ndjson_columns(file: Path, table: str) -> tuple[str, ...]:
    """Every used column, unless the first line shows that a column is not there at all."""
    every = tuple(spec.name for spec in USED[table])
    with file.open(encoding="utf-8-sig") as lines:
        first = next((line for line in lines if line.strip()), None)
    if first is None:
        return every
    try:
        row = json.loads(first)
    except UNDECODABLE:
        row = None
    if not isinstance(row, dict):
        raise BadInput(f"{file}: expected one JSON object a line, found {first.strip()[:60]!r}")
    return tuple(spec.name for spec in USED[table] if spec.nullable or spec.name in row)
