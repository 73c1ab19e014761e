"""Many seeds as one Spark job: each row is a chunk of seeds, its result one JSON text.

What a chunk gives depends on its seeds alone, never on the partition, and results come back in the
order of the chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_CHUNKS_A_CORE = 50  # so that all cores are busy to the end and progress is seen
_SEEDS_MAX = 100


def run_seeds(
    spark: SparkSession, seeds: range, work: Callable[[range], str]
) -> Iterator[tuple[range, str]]:
    """The result of `work` for consecutive chunks of the seeds, in order, as they are done."""
    size = len(seeds) // (_CHUNKS_A_CORE * spark.sparkContext.defaultParallelism)
    size = max(1, min(_SEEDS_MAX, size))
    starts = range(seeds.start, seeds.stop, size)

    def chunk(index: int) -> range:
        return range(starts[index], min(starts[index] + size, seeds.stop))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield pa.RecordBatch.from_pydict({"id": [index], "result": [work(chunk(index))]})

    chunks = spark.range(0, len(starts), 1, len(starts))
    done = chunks.mapInArrow(run, "id long, result string")
    for row in done.toLocalIterator(prefetchPartitions=True):
        yield chunk(row["id"]), row["result"]
