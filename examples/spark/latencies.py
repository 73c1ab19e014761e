"""How long events took, by topic and subscriber, from the trace of a run.

python examples/audited.py memory:// traced
python examples/spark/latencies.py traced
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as F

from unisono.pipeline.session import spark_session
from unisono.spark import UnisonoSource


def main(folder: str) -> None:
    spark = spark_session("latencies")
    spark.dataSource.register(UnisonoSource)
    publications = spark.read.format("unisono").option("table", "publications").load(folder)
    deliveries = spark.read.format("unisono").option("table", "deliveries").load(folder)
    latency_ms = (F.col("delivered_us") - F.col("published_us")) / 1000
    figures = (
        deliveries.join(publications, "event_id")
        .groupBy("topic", "subscriber")
        .agg(F.count("*").alias("events"), F.round(F.max(latency_ms), 1).alias("longest_ms"))
        .orderBy("topic", "subscriber")
    )
    figures.show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
