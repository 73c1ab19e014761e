"""Sweeps: runs of any number of experiments, as a chain of short Spark jobs.

A run is named by (experiment, setting, seed); its randomness derives from the seed alone, so a
sweep gives the same table on any number of cores and in any order. Experiments that simulate the
same have their runs in common, under the name of the first of them.

Each task of a job works through its runs until its time is up; what it has not begun goes into
another job. So nobody has to know beforehand how long a run takes, and results come every few
seconds. Two jobs are under way at a time: no core waits for the slowest task of a job.

No run takes others with it. One that raises is told with its traceback. Where a worker process
dies even when Spark has tried again, the runs of that job are run one by one, and one whose worker
dies again is told as failed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from unisono.errors import EnvironmentLacks
from unisono.version import code_digest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from unisono.experiments.registry import Experiment

Known = Callable[[], "Mapping[str, Experiment]"]

_JOBS = 2
_SECONDS = (2.0, 20.0)  # of a job, at first and at last: an interrupt loses its work
_SHARE = 0.1  # of the time so far that a job may take
_RUNS_A_TASK = 100
_POLL_S = 0.1
_COLUMNS = "run long, seconds double, measures map<string, double>, error string, code string"


class Run(NamedTuple):
    """One run. `experiment` is the one that gives the runs their name, see `owners`."""

    experiment: str
    setting: str
    seed: int


class Done(NamedTuple):
    """A run with what it gave: measures, or an error with its traceback."""

    run: Run
    seconds: float
    measures: Mapping[str, float] | None
    error: str | None


def owners(known: Mapping[str, Experiment]) -> dict[str, str]:
    """For each experiment the one under whose name its runs are kept."""
    first: dict[object, Experiment] = {}
    for experiment in known.values():
        owner = first.setdefault(experiment.simulate, experiment)
        assert experiment.measures == owner.measures, f"{experiment.id} and {owner.id} share runs"
    return {name: first[experiment.simulate].id for name, experiment in known.items()}


def runs_of(experiments: Iterable[Experiment], owner: Mapping[str, str], quick: bool) -> list[Run]:
    """All runs that the experiments need, each once."""
    return list(
        dict.fromkeys(
            Run(owner[experiment.id], setting, seed)
            for experiment in experiments
            for seed in range(experiment.quick_seeds if quick else experiment.seeds)
            for setting in experiment.settings
        )
    )


def sweep(
    spark: SparkSession, runs: Sequence[Run], quick: bool, known: Known
) -> Generator[list[Done], None, None]:
    """The results of all runs, a few at a time, in any order. Closing it cancels what is under way.

    `known` gives the experiments by id; the workers call it too.
    """
    context = spark.sparkContext
    pending, suspects = list(runs), list[Run]()
    begun = monotonic()
    group = f"unisono-{uuid4()}"
    under_way: dict[Future[list[Done]], list[Run]] = {}

    def job(chunk: list[Run], seconds: float) -> list[Done]:
        context.setJobGroup(group, f"runs of {chunk[0].experiment}", interruptOnCancel=True)
        return _job(spark, chunk, quick, known, seconds)

    with ThreadPoolExecutor(_JOBS) as pool:
        try:
            while pending or suspects or under_way:
                while (pending or suspects) and len(under_way) < _JOBS:
                    if suspects:
                        chunk = [suspects.pop(0)]
                    else:
                        size = min(
                            -(-len(pending) // _JOBS), _RUNS_A_TASK * context.defaultParallelism
                        )
                        chunk, pending = pending[:size], pending[size:]
                    least, most = _SECONDS
                    seconds = min(most, max(least, _SHARE * (monotonic() - begun)))
                    under_way[pool.submit(job, chunk, seconds)] = chunk
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    chunk = under_way.pop(future)
                    done = _outcome(future, chunk)
                    finished = {result.run for result in done}
                    rest = [run for run in chunk if run not in finished]
                    if done:
                        pending = rest + pending
                        yield done
                    else:
                        suspects += rest
        finally:  # again and again: a job that Spark does not know yet is not cancelled
            while wait(under_way, timeout=_POLL_S).not_done:
                context.cancelJobGroup(group)


def _outcome(future: Future[list[Done]], chunk: list[Run]) -> list[Done]:
    """What a job gave: nothing if a worker died under it, an error if it was all of its job."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        return future.result()
    except Py4JJavaError as error:  # an error of Python in a task is of another kind
        reason = str(error.java_exception.getMessage())
        if not reason.startswith("Job aborted due to stage failure"):
            raise
        if len(chunk) > 1:
            return []
        return [Done(chunk[0], 0.0, None, f"the worker died: {reason.splitlines()[0]}")]


def _job(
    spark: SparkSession, runs: list[Run], quick: bool, known: Known, seconds: float
) -> list[Done]:
    tasks = min(len(runs), spark.sparkContext.defaultParallelism)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        begun = monotonic()
        experiments = known()
        for batch in batches:
            for task in batch.column("id").to_pylist():
                for index in range(task, len(runs), tasks):
                    if index > task and monotonic() - begun > seconds:
                        break
                    done = run_one(experiments[runs[index].experiment], runs[index], quick)
                    measures = None if done.measures is None else list(done.measures.items())
                    yield pa.RecordBatch.from_arrays(
                        [
                            pa.array([index], pa.int64()),
                            pa.array([done.seconds], pa.float64()),
                            pa.array([measures], pa.map_(pa.string(), pa.float64())),
                            pa.array([done.error], pa.string()),
                            pa.array([code_digest()], pa.string()),
                        ],
                        names=["run", "seconds", "measures", "error", "code"],
                    )

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(work, _COLUMNS).collect()
    if any(row["code"] != code_digest() for row in rows):
        raise EnvironmentLacks("the Spark workers have another version of unisono than this one")
    return [Done(runs[row["run"]], row["seconds"], row["measures"], row["error"]) for row in rows]


def run_one(experiment: Experiment, run: Run, quick: bool) -> Done:
    """One run here and now; whatever it raises becomes its error."""
    import traceback

    begun = monotonic()
    try:
        found = experiment.simulate(run.setting, run.seed, quick)
        measures = {measure: float(found[measure]) for measure in experiment.measures}
    except Exception:  # any error: it is told, and the other runs go on
        return Done(run, monotonic() - begun, None, traceback.format_exc())
    return Done(run, monotonic() - begun, measures, None)
