"""A Spark driver to be killed: the topics a and b into Parquet, and onto the topic `out`.

    python -m support.streaming_driver URL FOLDER [once]

Prints "running" with the first micro-batch. With `once` it takes what is there and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from unisono.pipeline.session import spark_session
from unisono.spark import UnisonoSource


def main(url: str, folder: Path, once: bool) -> None:
    spark = spark_session("driver", shuffle_partitions=1)
    spark.dataSource.register(UnisonoSource)
    started = []
    for name in ("files", "bus"):
        reader = spark.readStream.format("unisono").options(
            bus=url, topics="a,b", journal=str(folder / "in"), reader=name, maxRows="1000"
        )
        frame = reader.load()
        if name == "files":
            writer = frame.writeStream.format("parquet").option("path", str(folder / "files"))
        else:
            writer = frame.selectExpr("payload").writeStream.format("unisono")
            writer = writer.options(bus=url, topic="out", spool=str(folder / "spool"))
        writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{name}"))
        started.append(writer.trigger(availableNow=True) if once else writer)
    queries = [writer.start() for writer in started]
    if not once:
        while not all(query.lastProgress for query in queries):
            for query in queries:
                query.awaitTermination(1)
        print("running", flush=True)
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:] == ["once"])
