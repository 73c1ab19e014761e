"""`unisono plan`."""

from __future__ import annotations

import json

import pytest

from unisono.cli.main import main

D1 = ["--within", "1000:0.95", "--within", "2000:0.998"]
LINKS = ["--loss", "0.02", "--burst", "2", "--nodes", "40", "--event-bytes", "23552"]


def test_the_plan_of_category_d1_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *LINKS, *D1, "--verify", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["feasible"] and told["confidence"] == "fairly sure"
    assert {"strategy", "redundancy", "fan_out", "fan_in", "period_s"} <= told["advice"].keys()
    assert {"success", "within", "latency_ms", "overhead"} <= told["predicted"].keys()
    assert told["verified"]["met"] and told["assumed"]["packets"] == 16


def test_people_get_a_line_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *LINKS, *D1]) == 0
    assert "Reliability(" in capsys.readouterr().out


def test_what_cannot_be_met_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *LINKS, "--within", "60:0.99", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["feasible"] and told["nearest"][0]["within_ms"] > 60


@pytest.mark.parametrize(
    "wrong",
    [
        ["--loss", "1.5"],
        ["--loss", "-0.1"],
        ["--burst", "0.5"],
        ["--nodes", "1"],
        ["--event-bytes", "-1"],
        ["--packet-bytes", "0"],
        ["--within", "soon"],
        ["--event-bytes", "1000000", "--verify"],
    ],
)
def test_bad_parameters_get_a_clear_error(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *LINKS, *D1, *wrong]) == 2
    assert "unisono plan:" in capsys.readouterr().err
