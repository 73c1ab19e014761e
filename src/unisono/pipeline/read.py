"""Reads trace folders: Parquet, CSV with a header, or newline-delimited JSON, in one file or parts.

What can be told from names, headers and Parquet footers is refused here, before Spark runs: a
missing table or column, a wrong type. Values are converted exactly or become null; the audit's
first pass counts nulls where none may be, and only then `Table.example` looks for the culprit.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from unisono.errors import BadInput
from unisono.trace.schema import (
    DELIVERIES,
    PUBLICATIONS,
    STATUSES,
    SUBSCRIPTIONS,
    TABLES,
    Column,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Format = Literal["parquet", "csv", "ndjson"]
SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
}
MALFORMED = "_malformed"  # holds the text of a line that is no row at all
FILE = "_file"

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


class Run(msgspec.Struct, frozen=True):
    """What `run.json` says to the audit; its other keys are not ours."""

    promises: list[str] | None = None
    settle_us: int | None = None
    deadline_us: int | None = None


@dataclass(frozen=True)
class Table:
    """One table of a trace. `rows` has exactly the columns of USED, typed; bad values are null."""

    name: str
    parts: tuple[Parts, ...]
    rows: DataFrame
    _raw: DataFrame  # as found, text as text, with MALFORMED and FILE

    @property
    def is_text(self) -> bool:
        return any(parts.format != "parquet" for parts in self.parts)

    def example(self, column: str) -> BadInput:
        """The error for a column in which a value is null, unreadable or unknown."""
        row = self.bad_row(column)
        if row is None:
            return BadInput(f"table {self.name}: column {column} cannot be used")
        spec = next(spec for spec in USED[self.name] if spec.name == column)
        return BadInput(_complaint(self.name, spec, row))

    def bad_row(self, column: str) -> Row | None:
        """A row that is malformed, or else has a bad value in `column`."""
        from pyspark.sql import functions as F

        spec = next(spec for spec in USED[self.name] if spec.name == column)
        raw = F.col(column)
        bad = F.lit(False) if spec.nullable else raw.isNull()
        if spec.type == "int64":
            bad = bad | (raw.isNotNull() & raw.try_cast("bigint").isNull())
        if column == "status":
            bad = bad | (raw.isNotNull() & ~raw.isin(*STATUSES))
        malformed = F.col(MALFORMED).isNotNull()
        return self._raw.where(malformed | bad).orderBy(~malformed).head()


@dataclass(frozen=True)
class Trace:
    """An opened trace. Nothing of its data has been read yet."""

    path: Path
    publications: Table
    deliveries: Table
    subscriptions: Table | None
    run: Run


def open_trace(spark: SparkSession, path: Path | str) -> Trace:
    """Open a run folder (with `trace/` and `run.json`) or a trace folder."""
    path = Path(path)
    if not path.exists():
        raise BadInput(f"{path}: no such folder")
    if not path.is_dir():
        raise BadInput(f"{path}: a trace is a folder of tables, this is a file")
    folder = path / "trace" if (path / "trace").is_dir() else path
    publications = _table(spark, folder, PUBLICATIONS)
    deliveries = _table(spark, folder, DELIVERIES)
    for name, table in ((PUBLICATIONS, publications), (DELIVERIES, deliveries)):
        if table is None:
            raise BadInput(
                f"{folder}: no table {name}; expected {name}.parquet, .csv or .ndjson, or a "
                f"folder {name}/ of such parts"
            )
    assert publications is not None and deliveries is not None
    subscriptions = _table(spark, folder, SUBSCRIPTIONS)
    return Trace(path, publications, deliveries, subscriptions, read_run(path / "run.json"))


def read_run(path: Path) -> Run:
    """The promises of a run folder; an absent file promises nothing in particular."""
    if not path.exists():
        return Run()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except (msgspec.MsgspecError, OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error


def _table(spark: SparkSession, folder: Path, name: str) -> Table | None:
    places = [folder / name, *(folder / f"{name}{suffix}" for suffix in SUFFIXES)]
    found = [place for place in places if place.exists()]
    if not found:
        return None
    if len(found) > 1:
        both = " and ".join(place.name for place in found[:2])
        raise BadInput(f"{folder}: table {name} is there twice: {both}")
    groups: dict[tuple[Format, tuple[str, ...]], list[Path]] = {}
    for file in _files(found[0]):
        format_ = SUFFIXES[file.suffix]
        groups.setdefault((format_, _columns(file, format_, name)), []).append(file)
    parts = tuple(Parts(*key, tuple(files)) for key, files in groups.items())
    raw = reduce(lambda a, b: a.unionByName(b), (_raw(spark, name, group) for group in parts))
    return Table(name, parts, _typed(raw, name), raw)


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
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise BadInput(f"{file}: expected one JSON object a line, found {first.strip()[:60]!r}")
    return tuple(spec.name for spec in USED[table] if spec.nullable or spec.name in row)


def _raw(spark: SparkSession, table: str, parts: Parts) -> DataFrame:
    """The rows as they are, with every column of USED; absent ones are null."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    specs = {spec.name: spec for spec in USED[table]}
    is_parquet = parts.format == "parquet"
    kinds = {"string": StringType(), "int64": LongType() if is_parquet else StringType()}
    fields = [
        StructField(name, kinds[specs[name].type] if name in specs else StringType())
        for name in parts.columns
    ]
    # Paths are taken as they are: a name with a star or a bracket in it is no pattern.
    reader = spark.read.option("__globPaths__", "false")
    paths = [f"file://{file.resolve()}" for file in parts.files]
    if is_parquet:
        rows = reader.schema(StructType(fields)).parquet(*paths).withColumn(MALFORMED, F.lit(None))
    else:
        schema = StructType([*fields, StructField(MALFORMED, StringType())])
        reader = reader.schema(schema).option("columnNameOfCorruptRecord", MALFORMED)
        if parts.format == "csv":
            rows = reader.option("columnPruning", "false").csv(
                paths, header=True, enforceSchema=False, mode="PERMISSIVE"
            )
        else:
            rows = reader.json(paths, mode="PERMISSIVE")
    have = set(parts.columns)
    columns = [
        F.col(name) if name in have else F.lit(None).cast(kinds[spec.type]).alias(name)
        for name, spec in specs.items()
    ]
    return rows.select(
        *columns,
        F.col(MALFORMED).cast("string").alias(MALFORMED),
        F.col("_metadata.file_path").alias(FILE),
    )


def _typed(raw: DataFrame, table: str) -> DataFrame:
    from pyspark.sql import functions as F

    whole = F.col(MALFORMED).isNull()
    columns = []
    for spec in USED[table]:
        column = F.col(spec.name)
        if spec.type == "int64":
            column = column.try_cast("bigint")
        columns.append(F.when(whole, column).alias(spec.name))
    return raw.select(*columns)


def _complaint(table: str, spec: Column, row: Row) -> str:
    from urllib.parse import unquote, urlparse

    file = unquote(urlparse(row[FILE]).path)
    if row[MALFORMED] is not None:
        return f"{file}: malformed row {row[MALFORMED][:80]!r} in table {table}"
    others = ", ".join(
        f"{name}={row[name]!r}"
        for name in (column.name for column in USED[table])
        if name != spec.name and row[name] is not None
    )
    value = row[spec.name]
    if value is None:
        return f"{file}: column {spec.name} is empty in the row with {others}; expected a value"
    if spec.name == "status":
        expected = f"one of {', '.join(STATUSES)}"
    else:
        expected = "a whole number of 64 bits"
    return (
        f"{file}: column {spec.name} holds {value!r} in the row with {others}; expected {expected}"
    )
