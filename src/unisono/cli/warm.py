"""`unisono warm`: what the first command of a machine would wait for, done in advance.

Compiles the large loops, which are kept beside their sources, and archives Spark's classes
(`pipeline/java.py`), so that Spark starts in two thirds of the time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from unisono.cli.ui import Ui
from unisono.errors import EnvironmentLacks
from unisono.pipeline.java import class_archive, find_java


def arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # no options of its own


def run(args: argparse.Namespace, ui: Ui) -> int:
    del args
    try:
        import numba  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise EnvironmentLacks(
            f"there is nothing to prepare ({error}): pip install 'unisono[spark]'"
        ) from error
    begun = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    works = {work.__name__: spawn.Process(target=work) for work in WORKS}
    for work in works.values():
        work.start()
    ui.remark("compiling loops, archiving the classes of Spark ...")
    archive, why = None, ""
    try:
        archive = str(_archive())
    except EnvironmentLacks as error:  # Spark runs without, too
        why = str(error)
    for work in works.values():
        work.join()
    failed = [name for name, work in works.items() if work.exitcode]
    if failed:
        raise EnvironmentLacks(f"these loops could not be compiled: {', '.join(failed)}")
    seconds = round(time.monotonic() - begun, 1)
    ui.emit({"compiled": list(works), "archive": archive, "why": why, "seconds": seconds})
    ui.show(f"done in {seconds} s; {why or f'the classes of Spark are in {archive}'}")
    return 0


def delivery() -> None:
    """The loops of reliable delivery."""
    import numpy as np

    from unisono.qos.reliable.options import Reliability
    from unisono.sim.columnar.delivery import NO_COSTS, Plan, run, star_parents

    run(
        Plan(
            parents=star_parents(3),
            published_us=np.array([1_000_000]),
            publishers=np.zeros(1, np.int32),
            subscribes=np.ones(3, np.bool_),
            costs=NO_COSTS,
            options=Reliability(),
        ),
        seed=1,
    )


def total_order() -> None:
    """The loops of total order."""
    from unisono.experiments.large_scale import columnar_run

    columnar_run(nodes=3, topics=2, seed=1, duration_s=3, publish="last")


WORKS = (delivery, total_order)


def _archive() -> Path:
    """Have a Spark of its own do a bit of everything, and keep the classes that it loaded."""
    target = class_archive(find_java())
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentLacks(f"cannot keep the classes of Spark: {error}") from None
    program = f"from {__name__} import rehearse; rehearse()"
    options = f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable -Xlog:all=error:stderr"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"SPARK_SUBMIT_OPTS": options},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or not fresh.exists():
            told = "this Java makes no archives"
            if done.returncode:
                told = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
            raise EnvironmentLacks(f"the classes of Spark could not be archived: {told}")
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    return target


def rehearse() -> None:
    """An audit, a table and a stream."""
    from unisono.pipeline.audit import audit
    from unisono.pipeline.read import open_trace
    from unisono.pipeline.session import end_session, spark_session
    from unisono.qos.fifo.options import Fifo
    from unisono.spark import in_order

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        spark = spark_session("warm", shuffle_partitions=1)
        trace = folder / "trace"
        trace.mkdir()
        (trace / "publications.csv").write_text(_PUBLICATIONS)
        (trace / "deliveries.csv").write_text(_DELIVERIES)
        audit(spark, open_trace(spark, trace))
        rows = spark.range(9).selectExpr("id % 2 AS key", "id DIV 2 AS number", "id AS at")
        rows.write.parquet(str(folder / "rows"))
        stream = spark.readStream.schema(rows.schema).parquet(str(folder / "rows"))
        latch = Fifo(rule="static", latch_ms=1, hold_ms=1)
        ordered = in_order(stream, key="key", sequence="number", arrived="at", latch=latch)
        query = ordered.writeStream.foreachBatch(lambda batch, _: batch.show())
        query = query.option("checkpointLocation", str(folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(60)
        end_session(spark)


_PUBLICATIONS = """event_id,topic,publisher,publisher_seq,published_us
e1,x,p,1,1000
e2,x,p,2,2000
"""
_DELIVERIES = """subscriber,position,event_id,delivered_us
ann,1,e1,1500
ann,2,e2,2500
bob,1,e2,2600
bob,2,e1,2700
"""
