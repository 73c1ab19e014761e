"""Figures of the pattern-detection experiment, from trace tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def detections(control: DataFrame) -> DataFrame:
    """Who detected what: (run, node, detection)."""
    return control.where("kind = 'detection'").selectExpr("run", "node", "detail AS detection")


def agreement(found: DataFrame, detectors: int = 2) -> DataFrame:
    """Per run: detections found by all detectors over detections found by any."""
    from pyspark.sql import functions as F

    by = found.groupBy("run", "detection").agg(F.countDistinct("node").alias("finders"))
    return by.groupBy("run").agg(
        F.count("*").alias("found"),
        F.sum((F.col("finders") == detectors).cast("long")).alias("agreed"),
        F.avg((F.col("finders") == detectors).cast("double")).alias("agreement"),
    )


def latency_curve(publications: DataFrame, deliveries: DataFrame, points: int = 50) -> DataFrame:
    """Per run: the latency in ms at `points` evenly spread quantiles."""
    from pyspark.sql import functions as F

    shares = [i / points for i in range(1, points + 1)]
    latency = (F.col("delivered_us") - F.col("published_us")) / 1000
    curve = (
        deliveries.join(publications, ["run", "event_id"])
        .groupBy("run")
        .agg(F.percentile_approx(latency, shares, 10000).alias("curve"))
    )
    return curve.select("run", F.posexplode("curve").alias("index", "latency_ms")).select(
        "run", ((F.col("index") + 1) / points).alias("share"), "latency_ms"
    )


def read_runs(spark: SparkSession, folders: Mapping[str, Path], table: str) -> DataFrame:
    """One table of several run folders, with the run's name as a column `run`."""
    from functools import reduce

    from pyspark.sql import functions as F

    parts: Sequence[DataFrame] = [
        spark.read.parquet(str(folder / "trace" / table)).withColumn("run", F.lit(name))
        for name, folder in folders.items()
    ]
    return reduce(lambda a, b: a.unionByName(b), parts)
