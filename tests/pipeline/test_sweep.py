"""Sweeps: every run once, whatever fails, and a table that is whole whenever one looks."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from itertools import chain
from pathlib import Path
from time import monotonic

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support import sweeps
from support.sweeps import counted, deadly, gated, made_up, value

from unisono.errors import BadInput
from unisono.experiments.registry import registry
from unisono.pipeline import runs as runs_module
from unisono.pipeline import sweep as sweep_module
from unisono.pipeline.runs import Runs, summarise
from unisono.pipeline.sweep import Done, Known, Run, owners, run_one, runs_of, sweep

ONE_OF_THREE = {"made-up": ("0", "1", "2")}


def all_runs(known: Known) -> list[Run]:
    return runs_of(known().values(), owners(known()), quick=True)


def swept(spark: SparkSession, known: Known) -> dict[Run, Done]:
    found = list(chain.from_iterable(sweep(spark, all_runs(known), True, known)))
    by_run = {done.run: done for done in found}
    assert len(by_run) == len(found), "no run twice"
    assert by_run.keys() == set(all_runs(known)), "no run lost"
    return by_run


@pytest.mark.parametrize("seconds", [(0.0, 0.0), (60.0, 60.0)])
def test_every_run_once_however_short_the_jobs(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: tuple[float, float],
) -> None:
    monkeypatch.setattr(sweep_module, "_SECONDS", seconds)
    known = made_up(counted(tmp_path / "calls"), 3, ONE_OF_THREE)
    for run, done in swept(spark, known).items():
        here = run_one(known()[run.experiment], run, True)
        assert (
            done.measures
            == here.measures
            == {
                "value": value(run.setting, run.seed),
                "value.squared": value(run.setting, run.seed) ** 2,
            }
        )
    assert len(list((tmp_path / "calls").iterdir())) == 2 * 9, "once there and once here"


def test_a_run_that_raises_is_told_and_loses_no_other(spark: SparkSession, tmp_path: Path) -> None:
    known = made_up(counted(tmp_path / "calls", fails=("1", 2)), 3, ONE_OF_THREE)
    failed = {run: done for run, done in swept(spark, known).items() if done.measures is None}
    assert failed.keys() == {Run("made-up", "1", 2)}
    (error,) = (done.error for done in failed.values())
    assert error and "ZeroDivisionError: as told" in error and "in simulate" in error


def test_a_run_without_one_of_its_measures_fails() -> None:
    experiment = made_up(lambda *_: {"value": 1.0}, 1, {"made-up": ("0",)})()["made-up"]
    done = run_one(experiment, Run("made-up", "0", 0), True)
    assert done.measures is None and "KeyError: 'value.squared'" in str(done.error)


def test_a_run_that_kills_its_worker_loses_no_other(spark: SparkSession) -> None:
    found = swept(spark, made_up(deadly("1", 1), 2, ONE_OF_THREE))
    failed = {run: str(done.error) for run, done in found.items() if done.measures is None}
    assert failed.keys() == {Run("made-up", "1", 1)}
    assert "the worker died" in failed[Run("made-up", "1", 1)]


def test_a_sweep_can_be_closed_while_runs_are_under_way(
    spark: SparkSession, tmp_path: Path
) -> None:
    known = gated(tmp_path)
    with closing(sweep(spark, all_runs(known), True, known)) as found:
        assert all_runs(known)[-1] not in [done.run for done in next(found)]
    # It came to an end, though nobody has opened the gate.
    (tmp_path / "gate").touch()
    assert len(swept(spark, known)) == 16


def test_experiments_that_simulate_the_same_share_their_runs() -> None:
    owner = owners(registry())
    assert owner["fig-3.19"] == owner["fig-3.18"] == "fig-3.18"
    wanted = [registry()["fig-3.10"], registry()["fig-3.9"]]
    runs = runs_of(wanted, owner, quick=True)
    assert {run.experiment for run in runs} == {"fig-3.9"}
    assert len(runs) == len(set(runs)) == len(registry()["fig-3.9"].settings) * 2


def results(*runs: Run, error: str | None = None) -> list[Done]:
    return [Done(run, 0.5, None if error else {"value": 1.0}, error) for run in runs]


ONE, TWO = Run("made-up", "0", 0), Run("made-up", "1", 7)


def test_runs_are_there_again_and_torn_files_are_not(tmp_path: Path, spark: SparkSession) -> None:
    with Runs(tmp_path, quick=True) as runs:
        assert runs.done == set()
        runs.add(results(ONE))
        runs.add(results(TWO, error="broken"))
        assert runs.done == {ONE}
        assert pq.read_table(runs.failures).to_pylist()[0]["error"] == "broken"
    (whole,) = runs.runs.glob("*.parquet")
    torn = runs.runs / "_torn.parquet"
    torn.write_bytes(whole.read_bytes()[:100])
    assert spark.read.parquet(str(runs.runs)).count() == 1, "a torn file is not read"
    with Runs(tmp_path, quick=True) as again:
        assert again.done == {ONE} and not torn.exists()
        assert not again.failures.exists(), "what failed is tried again"
    with Runs(tmp_path, quick=False) as long:
        assert long.done == set(), "quick runs are not taken for long ones"


def test_a_file_has_its_name_only_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with Runs(tmp_path, quick=True) as runs, pytest.raises(OSError, match="no space"):
        runs.add(results(ONE))
    monkeypatch.undo()
    assert [path.name[0] for path in runs.runs.iterdir()] == ["_"]
    with Runs(tmp_path, quick=True) as again:
        assert again.done == set()


def test_a_folder_of_other_code_another_process_or_damage_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Runs(tmp_path, quick=True) as runs:
        runs.add(results(ONE))
        with pytest.raises(BadInput, match="another process"):
            Runs(tmp_path, quick=True)
    monkeypatch.setattr(runs_module, "code_digest", lambda: "changed")
    with pytest.raises(BadInput, match="another version"):
        Runs(tmp_path, quick=True)
    monkeypatch.undo()
    Runs(tmp_path, quick=True).close()
    (runs.runs / "other.parquet").write_bytes(b"no table")
    with pytest.raises(BadInput, match="cannot read"):
        Runs(tmp_path, quick=True)


def test_the_summary_is_of_the_runs_an_experiment_asks_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    known = made_up(counted(tmp_path / "calls"), 2, {"first": ("0", "1"), "second": ("0", "1")})
    owner = owners(known())
    experiments = list(known().values())
    with Runs(tmp_path, quick=True) as runs:
        for run in [Run("first", "0", seed) for seed in range(4)]:  # two more than quick ones have
            runs.add([run_one(known()["first"], run, True)])
        tables = summarise(spark, runs.runs, experiments, owner, True)
        assert summarise(spark, runs.runs, experiments, owner, False) == {"first": {}, "second": {}}
    assert tables["first"] == tables["second"]
    assert tables["first"].keys() == {"0"}, "settings without a run are not there"
    figures = tables["first"]["0"]
    assert figures["runs"] == 2
    assert figures["value_mean"] == 0.5 and figures["value.squared_max"] == 1.0
    assert figures["value_sd"] == pytest.approx(0.5**0.5)


def test_a_killed_sweep_keeps_what_was_done(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SIGKILL while runs are under way; then the same command, here."""
    import json

    from unisono.cli.main import main
    from unisono.experiments import registry as registry_module

    table = tmp_path / "out" / "runs"
    program = subprocess.Popen([sys.executable, sweeps.__file__, str(tmp_path)])
    try:
        until = monotonic() + 120
        while not list(table.glob("[!_]*.parquet")):
            assert program.poll() is None and monotonic() < until
            signal.sigtimedwait([], 0.1)
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
    kept = pq.read_table(table).num_rows
    assert 0 < kept < 16

    (tmp_path / "gate").touch()
    monkeypatch.setattr(registry_module, "registry", gated(tmp_path, "again"))
    assert main(["reproduce", "all", "--quick", "--json", "--out", str(tmp_path / "out")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["runs"] == {"needed": 16, "taken_over": kept}
    assert len(list((tmp_path / "again").iterdir())) == 16 - kept
    rows = spark.read.parquet(str(table))
    assert rows.count() == rows.select("setting", "seed").distinct().count() == 16
