"""A streaming query on a cluster: python -m support.cluster_driver MASTER JOURNAL FOLDER

Puts the events of a journal in order of their publishers' numbers and writes them as Parquet.
Prints where the executors have our package from, then "running", and ends when it is told to on
standard input, after taking what is there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from unisono.pipeline.session import spark_session
from unisono.spark import UnisonoSource, in_order


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import unisono

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [unisono.__file__]})


def main(master: str, journal: str, folder: Path) -> None:
    spark = spark_session("cluster driver", master, shuffle_partitions=2)
    spark.dataSource.register(UnisonoSource)
    (row, *_) = spark.range(2).mapInArrow(where, "file string").collect()
    print(row.file, flush=True)
    events = spark.readStream.format("unisono").options(journal=journal, maxRows="2000").load()
    numbered = events.selectExpr(
        "publisher", "cast(attributes['n'] as long) n", "published", "delivered", "position"
    )
    query = (
        in_order(numbered, key="publisher", sequence="n", sent="published", arrived="delivered")
        .writeStream.format("parquet")
        .option("path", str(folder / "found"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    while not query.lastProgress:
        query.awaitTermination(1)
    print("running", flush=True)
    sys.stdin.readline()
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
