"""The session factory leaves the environment as it was; progress shows tasks and passes errors."""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress

from unisono.pipeline.java import class_archive, find_java
from unisono.pipeline.progress import run_with_progress
from unisono.pipeline.session import spark_session


@pytest.fixture
def progress() -> Progress:
    return Progress(console=Console(file=io.StringIO(), force_terminal=True))


def test_one_session_serves_the_process(spark: SparkSession) -> None:
    assert spark_session("another") is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert "log4j2" not in os.environ.get("SPARK_SUBMIT_OPTS", "")
    assert "SPARK_LOCAL_IP" not in os.environ


def test_progress_counts_the_tasks_of_an_action(spark: SparkSession, progress: Progress) -> None:
    with progress:
        total = run_with_progress(
            spark, "sum", progress, lambda: spark.range(0, 100, 1, 4).selectExpr("sum(id)").first()
        )
    assert total is not None and total[0] == 4950
    (task,) = progress.tasks
    assert task.description == "sum"
    assert task.finished and task.total is not None and task.total >= 4


def test_an_error_of_the_action_is_raised_as_it_is(spark: SparkSession, progress: Progress) -> None:
    def fail() -> None:
        raise LookupError("of the action")

    with progress, pytest.raises(LookupError, match="of the action"):
        run_with_progress(spark, "fail", progress, fail)


def test_without_a_display_the_action_just_runs(spark: SparkSession) -> None:
    assert run_with_progress(spark, "quiet", None, lambda: 7) == 7


def test_what_a_worker_has_loaded_is_frozen_after_its_task(spark: SparkSession) -> None:
    """Else it would look through all of it for garbage, task after task."""

    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()]})

    rows = spark.range(1, numPartitions=1).mapInArrow(frozen, "frozen long")
    for _ in range(2):  # one at least is not the first of its worker
        found = rows.collect()
    assert found[0].frozen > 10_000


def test_java_starts_from_the_archived_classes(spark: SparkSession) -> None:
    """If there are any; `unisono warm`, a part of the set-up, makes them."""
    beans = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    options = [str(option) for option in beans.getRuntimeMXBean().getInputArguments()]
    archive = class_archive(find_java())
    assert (f"-XX:SharedArchiveFile={archive}" in options) == archive.exists()
