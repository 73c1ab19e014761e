"""`unisono reproduce` when runs fail, and when a folder already holds some."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.sweeps import counted, made_up

from unisono.cli.main import main
from unisono.experiments import registry

EXPERIMENTS = {"small": ("0",), "large": ("0", "1")}  # they share their runs


def reproduce(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    code = main(["reproduce", *arguments, "--json"])
    told = capsys.readouterr()
    return code, json.loads(told.out), told.err


def test_runs_that_fail_are_told_and_tried_again(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> None:
    calls, out = tmp_path / "calls", tmp_path / "out"
    arguments = ("all", "--quick", "--out", str(out))
    broken = made_up(counted(calls, fails=("1", 0)), 2, EXPERIMENTS)
    monkeypatch.setattr(registry, "registry", broken)
    code, result, _ = reproduce(capsys, *arguments)
    assert code == 1
    (failure,) = result["failures"]
    assert (failure["experiment"], failure["setting"], failure["seed"]) == ("small", "1", 0)
    assert "ZeroDivisionError" in failure["error"]
    small, large = result["experiments"]
    assert [claim["verdict"] for claim in large["claims"]] == ["met"], "judged from the rest"
    assert [row["runs"] for row in small["table"]] == [2]
    assert [row["runs"] for row in large["table"]] == [2, 1]
    row = spark.read.parquet(str(out / "failures")).collect()[0]
    assert row["setting"] == "1" and row["error"] == failure["error"]

    command = shlex.split(failure["replay"])
    assert command[:3] == ["unisono", "reproduce", "large"]
    with pytest.raises(ZeroDivisionError, match="as told"):
        main(command[1:])

    monkeypatch.setattr(registry, "registry", made_up(counted(calls), 2, EXPERIMENTS))
    code, result, remarks = reproduce(capsys, *arguments)
    assert code == 0 and result["failures"] == []
    assert result["runs"] == {"needed": 4, "taken_over": 3}
    assert "3 of 4 runs taken over" in remarks
    assert len(list(calls.iterdir())) == 4 + 1 + 1, "first, replayed, and again what failed"


def test_a_setting_without_runs_leaves_the_claims_unknown(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> None:
    known = made_up(counted(tmp_path / "calls", fails=("1", 0)), 1, EXPERIMENTS)
    monkeypatch.setattr(registry, "registry", known)
    code, result, _ = reproduce(capsys, "all", "--quick", "--out", str(tmp_path / "out"))
    small, large = result["experiments"]
    assert code == 1
    assert [claim["verdict"] for claim in small["claims"]] == ["met"]
    assert [(c["measured"], c["verdict"]) for c in large["claims"]] == [("no run of 1", "unknown")]
    assert large["plot"] is None and large["runs"] == 1


def test_one_run_only(capsys: pytest.CaptureFixture[str]) -> None:
    code, result, _ = reproduce(
        capsys, "fig-5.6", "--quick", "--setting", "no coding m=1", "--seed", "3"
    )
    assert code == 0
    assert result["seed"] == 3 and set(result["measures"]) == set(registry.find("fig-5.6").measures)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("fig-5.6", "--seed", "3"), "go together"),
        (("fig-5.6", "fig-6", "--seed", "3", "--setting", "x"), "with one experiment"),
        (("fig-5.6", "--seed", "3", "--setting", "x"), "there are: no coding m=1"),
    ],
)
def test_bad_runs_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    code, result, _ = reproduce(capsys, *arguments)
    assert code == 2 and why in result["error"]


@pytest.mark.slow
def test_everything_there_is_can_be_reproduced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, spark: SparkSession
) -> None:
    code, result, _ = reproduce(capsys, "all", "--quick", "--out", str(tmp_path))
    assert result["failures"] == []
    assert [experiment["id"] for experiment in result["experiments"]] == list(registry.registry())
    verdicts = {c["verdict"] for experiment in result["experiments"] for c in experiment["claims"]}
    assert code == (1 if registry.NOT_MET in verdicts else 0)
    for experiment in result["experiments"]:
        settings = [row["setting"] for row in experiment["table"]]
        assert settings == list(registry.find(experiment["id"]).settings)
        assert Path(experiment["plot"]).is_file()
