"""How fast the streaming source is: rows a second into a sink that drops them.

The peer is a source of a few lines that yields the same record batches, ready made, from memory:
what PySpark can do at best. Both take turns; medians.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from unisono.core.events import Delivery, Status
from unisono.journal.journal import Journal
from unisono.journal.reading import Index
from unisono.net.collect import BATCH
from unisono.spark.source import BATCH_ROWS, SCHEMA, UnisonoSource, cut, rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS = 4_000_000
PARTITIONS = 8
ROWS_PER_S_MIN, RATIO_MIN = 500_000, 0.5
_FILE = "batch.arrow"


def measure(spark: SparkSession, count: int = ROWS, repeats: int = 3) -> dict[str, Any]:
    """Medians of `repeats` runs each, all rows in one micro-batch."""
    spark.dataSource.register(UnisonoSource)
    spark.dataSource.register(ReadyMade)
    times: dict[str, list[float]] = {"unisono": [], "ready-made": []}
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder, "journal"), count)
        _write_batch(Path(folder))
        for turn in range(repeats + 1):  # the first is not counted: everything starts then
            for name in times:
                reader = spark.readStream.format(name)
                if name == "unisono":
                    reader = reader.option("journal", str(Path(folder, "journal")))
                    reader = reader.options(maxRows=str(count), partitions=str(PARTITIONS))
                else:
                    reader = reader.options(folder=folder, rows=str(count))
                taken = _run(reader.load(), Path(folder, f"checkpoint-{name}-{turn}"), count)
                if turn:
                    times[name].append(taken)
    found = {name: statistics.median(values) for name, values in times.items()}
    speed, ratio = count / found["unisono"], found["ready-made"] / found["unisono"]
    return {
        "rows": count,
        "rows_per_s": round(speed),
        "ready_made_rows_per_s": round(count / found["ready-made"]),
        "ratio": round(ratio, 2),
        "targets": {"rows_per_s_min": ROWS_PER_S_MIN, "ratio_min": RATIO_MIN},
        "met": speed >= ROWS_PER_S_MIN and ratio >= RATIO_MIN,
    }


def _run(frame: DataFrame, checkpoint: Path, count: int) -> float:
    started = time.perf_counter()
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    taken = time.perf_counter() - started
    read_rows = sum(progress["numInputRows"] for progress in query.recentProgress)
    if read_rows != count:
        raise AssertionError(f"{read_rows} of {count} rows were read")
    return taken


def _write(folder: Path, count: int) -> None:
    """As a busy collector does: so many notifications at a time. The same ones again and again, so
    that it does not take forever."""
    batch = [
        Delivery(
            topic=f"prices.{number % 20}",
            payload=b"%0100d" % number,
            status=Status.IN_ORDER,
            id=f"publisher-{number % 50}-{number}",
            publisher=f"publisher-{number % 50}",
            position=number,
            published_us=number * 10,
            delivered_us=number * 10 + 1500,
            attributes={"price": number / 7},
        )
        for number in range(BATCH)
    ]
    with Journal(folder) as journal:
        while journal.next < count:
            journal.append(batch[: count - journal.next])
            journal.flush()


def _write_batch(folder: Path) -> None:
    import pyarrow as pa

    journal = folder / "journal"
    (part,) = cut(0, BATCH_ROWS, 1, Index(journal))
    (batch,) = rows(journal, part)
    with pa.OSFile(str(folder / _FILE), "wb") as file, pa.ipc.new_file(file, batch.schema) as out:
        out.write(batch)


class _Part(InputPartition):
    def __init__(self, count: int) -> None:
        self.count = count


class ReadyMade(DataSource):
    """The peer."""

    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _ReadyMadeReader(self.options["folder"], int(self.options["rows"]))


class _ReadyMadeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, folder: str, count: int) -> None:
        self._folder = folder
        self._count = count

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"at": self._count}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        edges = [self._count * at // PARTITIONS for at in range(PARTITIONS + 1)]
        return [_Part(edges[at + 1] - edges[at]) for at in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        assert isinstance(partition, _Part)
        with pa.memory_map(str(Path(self._folder, _FILE))) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
            left = partition.count
            while left > 0:
                yield batch.slice(0, min(left, batch.num_rows))
                left -= batch.num_rows
