"""`unisono audit` and `unisono bench audit` as a script sees them: stdout, stderr, exit codes."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from unisono.bench.audit import summarise
from unisono.cli.main import main
from unisono.pipeline.report import CHECKS

PUBLICATIONS = """event_id,topic,publisher,publisher_seq,published_us
e1,x,p,1,1000
e2,x,p,2,2000
"""
HEADER = "subscriber,position,event_id,delivered_us\n"
GOOD = HEADER + "ann,1,e1,1500\nann,2,e2,2500\nbob,1,e1,1600\nbob,2,e2,2600\n"
BAD = HEADER + "ann,1,e1,1500\nann,2,e2,2500\nbob,1,e2,2600\nbob,2,e1,2700\n"


def trace(folder: Path, deliveries: str) -> str:
    folder.mkdir()
    (folder / "publications.csv").write_text(PUBLICATIONS)
    (folder / "deliveries.csv").write_text(deliveries)
    return str(folder)


@pytest.mark.usefixtures("spark")
def test_json_of_one_trace_is_one_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", trace(tmp_path / "good", GOOD), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "valid"
    assert set(told["checks"]) == set(CHECKS)
    assert told["rows"] == {"publications": 2, "deliveries": 4, "subscriptions": None}


@pytest.mark.usefixtures("spark")
def test_several_traces_and_a_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [trace(tmp_path / "good", GOOD), trace(tmp_path / "bad", BAD)]
    assert main(["audit", *paths, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "invalid"
    assert [(each["path"], each["verdict"]) for each in told["traces"]] == [
        (paths[0], "valid"),
        (paths[1], "invalid"),
    ]
    assert main(["audit", paths[1], "--promise", "duplicates, phantoms"]) == 0


@pytest.mark.usefixtures("spark")
def test_a_growing_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("publications", PUBLICATIONS), ("deliveries", GOOD)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.csv").write_text(text)
    call = ["audit", str(tmp_path), "--incremental", "--horizon-s", "0"]
    assert main([*call, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["new"] == {"publications": 2, "deliveries": 4}
    (tmp_path / "deliveries" / "2.csv").write_text(HEADER + "ann,3,e2,2600\n")
    assert main([*call, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["checks"]["duplicates"]["witness"]["positions"] == [2, 3]
    assert told["new"] == {"publications": 0, "deliveries": 1}
    assert main([*call, "--final"]) == 0  # nothing new is wrong
    text = " ".join(capsys.readouterr().out.split())
    assert "audit 3 of this trace: 0 new rows of 7" in text
    assert "all audits so far: invalid" in text


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--final"], "--final is for --incremental audits"),
        (["--horizon-s", "5"], "--horizon-s is for --incremental audits"),
        (["--incremental", "--horizon-s", "-1"], "expected a number of seconds"),
        (["--incremental", "--horizon-s", "nan"], "expected a number of seconds"),
        (["elsewhere", "--incremental", "--state", "s"], "--state is for one trace"),
    ],
)
def test_options_of_growing_traces(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "somewhere", *options]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("spark")
def test_people_read_the_witness_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", trace(tmp_path / "bad", BAD), "--deadline-ms", "1"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "ann heard e1 before e2 (positions 1, 2), bob heard e2 before e1" in text
    assert "bob heard e2 (number 2) at position 1 and then e1 (number 1) at position 2" in text
    assert "bob got e1 at position 2, 1.7 ms after publication" in text
    assert "verdict: invalid" in text


@pytest.mark.usefixtures("spark")
def test_an_unjudged_promise_is_unknown_and_exits_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(tmp_path / "good", GOOD)
    assert main(["audit", path, "--json", "--promise", "losses"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "unknown"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("deliveries", "options", "complaint"),
    [
        (GOOD, ["--promise", "order"], "no check named 'order'"),
        (GOOD, ["--promise", ","], "names no check"),
        (GOOD, ["--deadline-ms", "-1"], "not negative"),
        (GOOD, ["--settle-ms", "nan"], "not negative"),
        (HEADER + "ann,one,e1,5\n", [], "column position holds 'one'"),
        ("subscriber,position\n", [], "no column event_id"),
        (HEADER + "ann,1,e1,5\nann,1,e2,6\n", [], "has position 1 more than once"),
    ],
)
def test_bad_input_exits_2_without_a_traceback(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    deliveries: str,
    options: list[str],
    complaint: str,
) -> None:
    assert main(["audit", trace(tmp_path / "t", deliveries), "--json", *options]) == 2
    said = capsys.readouterr()
    assert complaint in json.loads(said.out)["error"]
    assert "Traceback" not in said.err


def test_a_missing_folder_exits_2_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in " ".join(capsys.readouterr().err.split())


def test_without_spark_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def lacking(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("pyspark"):
            raise ImportError("No module named 'pyspark'")
        return real(name, *rest, **more)

    path = trace(tmp_path / "good", GOOD)
    monkeypatch.setattr(builtins, "__import__", lacking)
    assert main(["audit", path, "--json"]) == 3
    assert "pip install 'unisono[spark]'" in json.loads(capsys.readouterr().out)["error"]


def test_bench_audit_tells_ratios_and_growth(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unisono.bench.audit.WARM_UP_ROWS", 1000)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    code = main(["bench", "audit", "--rows", "2000,4000", "--runs", "1", "--json", "--folder", str(tmp_path)])  # fmt: skip # noqa: E501
    spark.conf.set("spark.sql.shuffle.partitions", str(before))
    told = json.loads(capsys.readouterr().out)
    assert told["machine"]["cores"] >= 1
    assert [size["rows"] for size in told["audit"]["sizes"]] == [2000, 4000]
    assert code == (0 if told["audit"]["met"] else 1)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    assert main(["bench", "audit", "--rows", "many"]) == 2


def test_targets_are_judged_over_all_sizes() -> None:
    small = {"rows": 10, "sort_write_s": 1.0, "audit_s": 4.0, "ratio": 4.0}
    large = {"rows": 80, "sort_write_s": 8.0, "audit_s": 36.0, "ratio": 4.5}
    assert summarise([small, large])["growth"] == 1.125
    assert summarise([small, large])["met"]
    assert not summarise([small, large | {"audit_s": 40.0}])["met"]
    assert not summarise([small | {"ratio": 5.1}, large])["met"]
    assert summarise([small])["growth"] is None
