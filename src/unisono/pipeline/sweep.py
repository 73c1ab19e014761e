"""Sweeps: many runs of an experiment as one Spark job.

Each row of the job is one run, named by (setting, seed); its randomness derives from the seed
alone, never from the partition, so a sweep gives the same table on any number of cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from unisono.experiments.registry import Experiment


def sweep(
    spark: SparkSession, experiment: Experiment, seeds: Sequence[int], quick: bool
) -> DataFrame:
    """One row per run: setting, seed and the experiment's measures."""
    runs = [(setting, seed) for seed in seeds for setting in experiment.settings]
    measures = experiment.measures
    name = experiment.id
    columns = ", ".join(f"`{measure}` double" for measure in measures)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from unisono.experiments.registry import find

        simulate = find(name).simulate
        for batch in batches:
            for index in batch.column("id").to_pylist():
                setting, seed = runs[index]
                result = simulate(setting, seed, quick)
                values: dict[str, list[Any]] = {"setting": [setting], "seed": [seed]}
                values |= {measure: [float(result[measure])] for measure in measures}
                yield pa.RecordBatch.from_pydict(values)

    # Two tasks a core keep both busy to the end; a run is small against the cost of a task.
    tasks = max(1, min(len(runs), 4 * spark.sparkContext.defaultParallelism))
    return spark.range(0, len(runs), 1, tasks).mapInArrow(
        work, f"setting string, seed long, {columns}"
    )


def summarise(runs: DataFrame, measures: Sequence[str]) -> DataFrame:
    """Per setting: runs, and mean, sd, least and greatest of each measure."""
    from pyspark.sql import functions as F

    figures = [F.count("*").alias("runs")]
    for measure in measures:
        figures += [
            F.avg(measure).alias(f"{measure}_mean"),
            F.coalesce(F.stddev(measure), F.lit(0.0)).alias(f"{measure}_sd"),
            F.min(measure).alias(f"{measure}_min"),
            F.max(measure).alias(f"{measure}_max"),
        ]
    return runs.groupBy("setting").agg(*figures)
