"""`unisono model`."""

from __future__ import annotations

import json
from math import exp
from typing import Any

import pytest

from unisono.cli.main import main

TREE = "model tree --degree 2 --depth 3 --packets 16 --redundancy 3 --loss 0.02 --burst 2 --json"


def answer(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(line.split()) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_model_answers(capsys: pytest.CaptureFixture[str]) -> None:
    tree = answer(f"{TREE} --alpha 0.7 --rounds 8", capsys)
    assert len(tree["success"]) == 9
    channel = answer("model channel --packets 16 --loss 0.02 --burst 2 --json", capsys)
    assert len(channel["lost"]) == 17
    chain = "model markov --packets 10 --redundancy 2 --loss 0.2 --burst 2 --fanout 2 --rounds 3"
    coded, plain = answer(f"{chain} --json", capsys), answer(f"{chain} --no-coding --json", capsys)
    assert len(coded["success"]) == 4
    assert coded["success"][0] > plain["success"][0]


def test_the_latch_answers(capsys: pytest.CaptureFixture[str]) -> None:
    line = "model latch --violation 0.05 --samples-ms=3,-3,1.5,-4.5 --delta-ms 5 --json"
    found, printed = answer(line, capsys), answer(f"{line} --rule paper", capsys)
    assert found["scale_ms"] == printed["scale_ms"] == 2
    assert found["quantile_ms"] == pytest.approx(6.543624120712584)
    assert printed["latch_ms"] == pytest.approx(1.543624120712584)
    held = found["latch_ms"]
    assert (4 + 5 + held) * exp(-(5 + held) / 2) == pytest.approx(0.05 * (4 + 5) * exp(-5 / 2))


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "channel", "--packets", "1", "--loss", "0.25", "--burst", "2"]) == 0
    assert "0.750000000" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        "model channel --packets -1 --loss 0.1",
        "model channel --packets 0 --loss 0.1",
        "model channel --packets 4 --loss 1.5",
        "model channel --packets 4 --loss 0.1 --burst 0",
        "model tree --degree 2 --depth 2 --packets 0 --loss 0.1",
        "model markov --packets 4 --loss 0.1 --redundancy -1",
        "model latch --violation 0 --samples-ms=1",
        "model latch --violation 0.1 --samples-ms=1 --rule best",
        "model latch --violation 0.1 --samples-ms=1,x",
        "model latch --violation 0.1 --samples-ms=",
        "model latch --violation 0.1 --samples-ms=1,inf",
        "model latch --violation 0.1 --samples-ms=1 --delta-ms=-1",
    ],
)
def test_bad_parameters_are_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*wrong.split(), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2
