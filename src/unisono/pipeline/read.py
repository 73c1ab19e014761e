"""Reads trace folders: Parquet, CSV with a header, or newline-delimited JSON, in one file or parts.

Values are converted exactly or become null; the audit's first pass counts nulls where none may be,
and only then `Table.example` reads the table again to name the culprit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from unisono.errors import UNDECODABLE, BadInput
from unisono.pipeline.locate import USED, Parts, check_folder, find_parts
from unisono.trace.schema import DELIVERIES, PUBLICATIONS, STATUSES, SUBSCRIPTIONS, Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

MALFORMED = "_malformed"  # holds the text of a line that is no row at all
FILE = "_file"


class Run(msgspec.Struct, frozen=True):
    """What `run.json` says to the audit; its other keys are not ours."""

    promises: list[str] | None = None
    settle_us: int | None = None
    deadline_us: int | None = None
    stall_us: int | None = None
    order: dict[str, str] | None = None  # topic pattern -> guarantee, the first match counts

    def ordered(self, topic: str) -> bool:
        """Whether the order of the topic is judged: of all topics if the run does not say, else of
        those in total order; if there are none, of those in FIFO."""
        if self.order is None:
            return True
        judged = "total" if "total" in self.order.values() else "fifo"
        guarantees = (of for pattern, of in self.order.items() if fnmatchcase(topic, pattern))
        return next(guarantees, "none") == judged


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
    folder = trace_folder(path)
    parts = {name: find_parts(folder, name) for name in USED}
    for name in (PUBLICATIONS, DELIVERIES):
        if not parts[name]:
            raise no_table(folder, name)
    return trace_of(spark, path, parts)


def trace_folder(path: Path) -> Path:
    """Where the tables of a run folder or trace folder are."""
    check_folder(path)
    return path / "trace" if (path / "trace").is_dir() else path


def no_table(folder: Path, name: str) -> BadInput:
    return BadInput(
        f"{folder}: no table {name}; expected {name}.parquet, .csv or .ndjson, or a "
        f"folder {name}/ of such parts"
    )


def trace_of(spark: SparkSession, path: Path, parts: Mapping[str, tuple[Parts, ...]]) -> Trace:
    """A trace of these files; both obligatory tables have some."""
    subscriptions = None
    if parts[SUBSCRIPTIONS]:
        subscriptions = table_of(spark, SUBSCRIPTIONS, parts[SUBSCRIPTIONS])
    return Trace(
        path,
        table_of(spark, PUBLICATIONS, parts[PUBLICATIONS]),
        table_of(spark, DELIVERIES, parts[DELIVERIES]),
        subscriptions,
        read_run(path / "run.json"),
    )


def read_run(path: Path) -> Run:
    """The promises of a run folder; an absent file promises nothing in particular."""
    if not path.exists():
        return Run()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except (*UNDECODABLE, OSError) as error:
        raise BadInput(f"{path}: {error}") from error


def table_of(spark: SparkSession, name: str, parts: tuple[Parts, ...]) -> Table:
    """A table of these files, of which there is at least one."""
    raw = reduce(lambda a, b: a.unionByName(b), (_raw(spark, name, group) for group in parts))
    return Table(name, parts, _typed(raw, name), raw)


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
    # Spark takes paths for patterns: a star or a bracket in a name must stand for itself.
    paths = [
        "file://" + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(file.resolve())) for file in parts.files
    ]
    reader = spark.read
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
