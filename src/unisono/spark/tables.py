"""Tables of a trace folder as batches: each part file is a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from unisono.errors import BadInput
from unisono.pipeline.locate import SUFFIXES, find_files
from unisono.pipeline.read import no_table, trace_folder
from unisono.spark.options import TableOptions
from unisono.trace.schema import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

_SQL = {"string": "string", "int64": "bigint"}


def schema(options: TableOptions) -> str:
    if options.table not in TABLES:
        raise BadInput(f"no table {options.table!r} in a trace; there are {', '.join(TABLES)}")
    return ", ".join(f"{column.name} {_SQL[column.type]}" for column in TABLES[options.table])


class Part(InputPartition):
    def __init__(self, path: Path) -> None:
        self.path = path


class TableReader(DataSourceReader):
    """One table, as it was recorded; what an audit thinks of it is `unisono audit`'s to say."""

    def __init__(self, options: TableOptions) -> None:
        assert options.path is not None
        self._table = options.table
        self._folder = Path(options.path).absolute()

    def partitions(self) -> Sequence[InputPartition]:
        folder = trace_folder(self._folder)
        found = find_files(folder, self._table)
        if not found:
            raise no_table(folder, self._table)
        return [Part(path) for path in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return _rows(partition.path, self._table)


def _rows(path: Path, table: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    kinds = {"string": pa.string(), "int64": pa.int64()}
    wanted = pa.schema([(column.name, kinds[column.type]) for column in TABLES[table]])
    try:
        for batch in _batches(path, wanted):
            have = set(batch.schema.names)
            columns = [
                batch[field.name].cast(field.type)
                if field.name in have
                else pa.nulls(batch.num_rows, field.type)
                for field in wanted
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path}: {error}") from error


def _batches(path: Path, wanted: pa.Schema) -> Iterator[Any]:
    kinds = {field.name: field.type for field in wanted}
    if SUFFIXES[path.suffix] == "parquet":
        import pyarrow.parquet as pq

        file = pq.ParquetFile(path)
        names = [name for name in file.schema_arrow.names if name in kinds]
        yield from file.iter_batches(columns=names)
    elif SUFFIXES[path.suffix] == "csv":
        from pyarrow import csv

        convert = csv.ConvertOptions(column_types=kinds, strings_can_be_null=True)
        yield from csv.open_csv(path, convert_options=convert)
    else:
        from pyarrow import json

        parse = json.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
        yield from json.read_json(path, parse_options=parse).to_batches()
