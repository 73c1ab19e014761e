"""The table of a sweep's runs: a folder that is added to, and a summary of it.

`FOLDER/runs` is one Parquet table with a row per run, `FOLDER/failures` one of the runs that
failed. What is added is added whole or not at all: a file takes its name when it is complete and
on the disk, so whenever the process is killed, the table can be read and the sweep continued. One
process writes a folder at a time. All runs in a folder are of the same code.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from unisono.errors import BadInput
from unisono.files import hold
from unisono.pipeline.sweep import Done, Run
from unisono.version import code_digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unisono.experiments.registry import Experiment

_LOCK = ".lock"
_UNFINISHED = "_"  # Spark and Arrow take files that begin so for no part of a table


class Runs:
    """The runs in a folder. To be closed."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self._quick = quick
        self.runs, self.failures = folder / "runs", folder / "failures"
        self._lock = hold(folder, _LOCK, "runs")
        self.runs.mkdir(exist_ok=True)
        self.done = self._recover()

    def _recover(self) -> set[Run]:
        """The runs that are there. What failed is tried again, so old failures go."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for left in self.runs.glob(f"{_UNFINISHED}*"):
            left.unlink()
        columns = ["experiment", "setting", "seed", "quick", "code"]
        try:
            tables = [pq.read_table(path, columns=columns) for path in self.runs.glob("*.parquet")]
        except pa.ArrowException as error:
            self.close()
            raise BadInput(f"cannot read the runs in {self.runs}: {error}") from None
        rows = [row for table in tables for row in table.to_pylist()]
        if any(row["code"] != code_digest() for row in rows):
            self.close()
            raise BadInput(
                f"the runs in {self.runs} are of another version of unisono, which may give other "
                "results: name another folder, or remove this one"
            )
        if self.failures.exists():
            shutil.rmtree(self.failures)
        return {
            Run(row["experiment"], row["setting"], row["seed"])
            for row in rows
            if row["quick"] == self._quick
        }

    def add(self, results: Sequence[Done]) -> None:
        """Add results; they are on the disk when this returns."""
        import pyarrow as pa

        kinds = {
            self.runs: ("measures", pa.map_(pa.string(), pa.float64())),
            self.failures: ("error", pa.string()),
        }
        for folder, (column, kind) in kinds.items():
            rows = [done for done in results if getattr(done, column) is not None]
            if not rows:
                continue
            values = {
                "experiment": pa.array([done.run.experiment for done in rows], pa.string()),
                "setting": pa.array([done.run.setting for done in rows], pa.string()),
                "seed": pa.array([done.run.seed for done in rows], pa.int64()),
                "quick": pa.array([self._quick] * len(rows), pa.bool_()),
                "seconds": pa.array([done.seconds for done in rows], pa.float64()),
                "code": pa.array([code_digest()] * len(rows), pa.string()),
                column: pa.array([_packed(getattr(done, column)) for done in rows], kind),
            }
            _write(pa.table(values), folder)
        self.done |= {done.run for done in results if done.error is None}

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _packed(value: Any) -> Any:
    return list(value.items()) if isinstance(value, Mapping) else value


def _write(table: Any, folder: Path) -> None:
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    name = f"{uuid4()}.parquet"
    unfinished = folder / f"{_UNFINISHED}{name}"
    with unfinished.open("wb") as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(folder / name)


def summarise(
    spark: SparkSession,
    runs: Path,
    experiments: Sequence[Experiment],
    owner: Mapping[str, str],
    quick: bool,
) -> dict[str, dict[str, dict[str, Any]]]:
    """By experiment and setting: runs, and mean, sd, least and greatest of each measure."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import functions as F

    wanted = [
        {
            "id": experiment.id,
            "experiment": owner[experiment.id],
            "setting": setting,
            "seeds": experiment.quick_seeds if quick else experiment.seeds,
        }
        for experiment in experiments
        for setting in experiment.settings
    ]
    rows = (
        spark.createDataFrame(pq.read_table(runs))  # read here: executors need not see the folder
        .where(F.col("quick") == quick)
        .join(
            F.broadcast(spark.createDataFrame(pa.Table.from_pylist(wanted))),
            ["experiment", "setting"],
        )
        .where(F.col("seed") < F.col("seeds"))
        .select("id", "setting", F.explode("measures").alias("measure", "value"))
        .groupBy("id", "setting", "measure")
        .agg(
            F.count("*").alias("runs"),
            F.avg("value").alias("mean"),
            F.coalesce(F.stddev("value"), F.lit(0.0)).alias("sd"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
        )
        .collect()
    )
    found = {(row["id"], row["setting"], row["measure"]): row for row in rows}
    return {
        experiment.id: {
            setting: _figures(experiment, setting, found)
            for setting in experiment.settings
            if (experiment.id, setting, experiment.measures[0]) in found
        }
        for experiment in experiments
    }


def _figures(experiment: Experiment, setting: str, found: Mapping[Any, Any]) -> dict[str, Any]:
    rows = {measure: found[experiment.id, setting, measure] for measure in experiment.measures}
    figures: dict[str, Any] = {
        "setting": setting,
        "runs": rows[experiment.measures[0]]["runs"],
    }
    for measure, row in rows.items():
        figures |= {f"{measure}_{name}": row[name] for name in ("mean", "sd", "min", "max")}
    return figures
