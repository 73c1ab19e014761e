"""The command line as scripts see it: JSON, exit codes, and errors that say what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from unisono.cli import warm
from unisono.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
TWO_TOPICS = str(ROOT / "scenarios" / "two-topics.toml")


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main([*arguments, "--json"])
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 1, "one JSON object on stdout and nothing else"
    return code, json.loads(lines[0]), captured.err


def test_sim_is_reproducible(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("sim", TWO_TOPICS, "--seed", "7", "--out", str(tmp_path / "run"))
    code, first, _ = call(capsys, *arguments)
    _, again, _ = call(capsys, *arguments)
    assert code == 0
    assert first["verdict"] == "valid" and first["seed"] == 7
    assert first["trace_sha256"] == again["trace_sha256"]
    assert {"events", "deliveries", "tagged", "checks", "failures"} <= first.keys()
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["seed"] == 7 and "total-order" in run["promises"]
    assert (tmp_path / "run" / "trace" / "deliveries").is_dir()


def test_sim_over_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    code, result, _ = call(capsys, "sim", TWO_TOPICS, "--seeds", "0:20")
    assert code == 0
    assert result["verdicts"] == {"valid": 20, "invalid": 0}
    assert result["seeds"] == [0, 20] and result["failures"] == []


def test_sim_of_a_broken_protocol_exits_1_and_names_the_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.bugs import swallows_one_in_ten

    swallows_one_in_ten(monkeypatch)
    code, result, _ = call(capsys, "sim", TWO_TOPICS, "--seeds", "0:3")
    assert code == 1
    assert result["verdict"] == "invalid"
    assert {failure["seed"] for failure in result["failures"]} <= {0, 1, 2}
    assert result["failures"][0]["check"] == "losses"


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("sim", "nowhere.toml"), 2, "cannot read scenario"),
        (("sim", TWO_TOPICS, "--seeds", "5"), 2, "A:B"),
        (("sim", TWO_TOPICS, "--seeds", "5:5"), 2, "A < B"),
        (("reproduce",), 2, "name an experiment"),
        (("reproduce", "fig-0"), 2, "there are: exact-stamps, fifo-1a"),
        (("audit", "nowhere"), 2, "nowhere"),
        (("bench", "nonesuch"), 2, "nonesuch"),
    ],
)
def test_bad_usage_is_explained(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, why: str
) -> None:
    try:
        got = main(list(arguments))
    except SystemExit as stopped:  # argparse
        got = int(stopped.code or 0)
    captured = capsys.readouterr()
    assert got == code
    assert why in captured.err.replace("\n", " ")
    assert "Traceback" not in captured.err


def test_errors_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, result, _ = call(capsys, "sim", "nowhere.toml")
    assert code == result["exit_code"] == 2
    assert "nowhere.toml" in result["error"]


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    code, result, _ = call(capsys, "doctor")
    assert code == 0 and result["ok"]
    assert any(finding["what"] == "Java for Spark" for finding in result["findings"])


def test_demo(capsys: pytest.CaptureFixture[str], tmp_path: Path, spark: SparkSession) -> None:
    code, result, _ = call(capsys, "demo", "--out", str(tmp_path))
    assert code == 0
    by_name = {setting["name"]: setting for setting in result["settings"]}
    assert list(by_name) == ["bare", "buffer-0", "buffer-30", "unbounded"]
    assert by_name["bare"]["agreement"] < 0.6
    assert by_name["bare"]["total_order_violations"] > 0
    assert by_name["unbounded"]["agreement"] == 1.0
    assert by_name["unbounded"]["tagged"] == 0.0
    for name in ("buffer-0", "buffer-30", "unbounded"):
        assert by_name[name]["total_order_violations"] == 0
        assert 0 < by_name[name]["latency_ms"]["mean"] < by_name[name]["latency_ms"]["p99"]
    page = Path(result["report"]).read_text()
    assert page.count("<svg") == 3 and "unbounded" in page


def test_reproduce(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, listed, _ = call(capsys, "reproduce", "--list")
    assert code == 0 and "fig-3.21" in [entry["id"] for entry in listed["experiments"]]
    code, result, _ = call(capsys, "reproduce", "fig-3.21", "--quick", "--out", str(tmp_path))
    (experiment,) = result["experiments"]
    verdicts = {claim["claim"]: claim["verdict"] for claim in experiment["claims"]}
    assert code == (1 if "not met" in verdicts.values() else 0)
    assert verdicts["with an unbounded buffer every pattern is detected by both"] == "met"
    assert verdicts["a larger buffer means more agreement"] == "met"
    assert {"claim", "paper", "measured", "verdict"} <= experiment["claims"][0].keys()
    assert experiment["table"][0]["setting"] == "bare"
    assert Path(experiment["plot"]).exists()


def test_warm_goes_on_without_an_archive_and_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What it does when all is well, the set-up and `tests/pipeline/test_session.py` show."""
    monkeypatch.setattr(warm, "class_archive", lambda java: tmp_path / "new" / "spark.jsa")
    monkeypatch.setattr(warm, "WORKS", ())
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", "x\nfull\n")
    )
    code, result, _ = call(capsys, "warm")
    assert code == 0 and result["archive"] is None
    assert result["why"] == "the classes of Spark could not be archived: full"
    assert list((tmp_path / "new").iterdir()) == []


def test_warm_without_spark_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    code, result, _ = call(capsys, "warm")
    assert code == 3 and "pip install 'unisono[spark]'" in result["error"]


def test_the_installed_command_runs() -> None:
    command = Path(sys.executable).parent / "unisono"
    done = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in COMMANDS)
