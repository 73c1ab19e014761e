"""A Spark action with a progress bar: the action runs in a thread, this one watches the stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from rich.progress import Progress

T = TypeVar("T")

POLL_S = 0.2


def run_with_progress(
    spark: SparkSession, label: str, progress: Progress | None, action: Callable[[], T]
) -> T:
    """Run `action`, any number of Spark jobs, and show its tasks on `progress` under `label`.

    Errors of the action are raised here as they are. An interrupt cancels its Spark jobs.
    """
    if progress is None or progress.disable:
        return action()
    from pyspark import InheritableThread

    context = spark.sparkContext
    group = f"unisono-{uuid4()}"
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        context.setJobGroup(group, label, interruptOnCancel=True)
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)

    bar = progress.add_task(label, total=None)
    thread = InheritableThread(target=work)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_S)
            done, total = _tasks(context, group)
            progress.update(bar, completed=done, total=total or None)
    except BaseException:
        context.cancelJobGroup(group)
        thread.join()
        raise
    if errors:
        raise errors[0]
    done, total = _tasks(context, group)
    progress.update(bar, completed=max(total, 1), total=max(total, 1))
    return results[0]


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    """Finished and known tasks of every job of the group so far."""
    done = total = 0
    tracker = context.statusTracker()
    stages: set[int] = set()
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        stages.update(job.stageIds if job else ())
    for stage_id in stages:
        stage = tracker.getStageInfo(stage_id)
        if stage is not None:
            done += stage.numCompletedTasks
            total += stage.numTasks
    return done, total
