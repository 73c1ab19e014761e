"""`make fuzz`: what it finds it tells with a line that reproduces it, and it ends in time."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from multiprocessing.pool import ThreadPool
from pathlib import Path
from random import Random

import fuzz
import pytest
from support.bugs import BUGS

from unisono.cli.main import main as unisono
from unisono.cli.ui import Ui

PROPERTIES = """
import os
from hypothesis import given, settings, strategies as st
settings.register_profile("fuzz", derandomize=False, database=None)
settings.load_profile(os.environ["UNISONO_PROFILE"])

@given(st.integers())
def test_holds(number):
    assert number == number

def test_is_no_property():
    raise AssertionError
"""
BROKEN = """
@given(st.integers())
def test_fails(number):
    assert number <= int(os.environ.get("UNISONO_SEED", 1 << 200))
"""
ENDLESS = """
from pathlib import Path
from threading import Event

@given(st.integers())
def test_waits(number):
    Path("begun").touch()
    Event().wait()
"""


def quiet(text: str) -> None:
    pass


def soon() -> float:
    """Long enough for a few tests on a busy machine."""
    return time.monotonic() + 120


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with properties of its own."""
    monkeypatch.setattr(fuzz, "CORES", 1)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q\n")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        *(["--minutes", text] for text in ("", "0", "-1", "nan", "inf", "ten", "1e9")),
        *(["--minutes", "1", "--seed", text] for text in ("", "-1", "1.5", "x", "\u00b2")),
        ["--minutes", "1", "--hours", "1"],
        ["--minutes", "1", "now"],
    ],
)
def test_bad_arguments_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        fuzz.main(arguments)
    assert refused.value.code == 2
    assert "fuzz.py: error: " in capsys.readouterr().err


def test_a_broken_property_is_found_and_reproduced(folder: Path) -> None:
    (folder / "test_it.py").write_text(PROPERTIES + BROKEN)
    told: list[str] = []
    report = fuzz.Report(0, tell=told.append)
    fuzz.run_properties(100, soon(), report, quiet, folder)
    fuzz.run_properties(100, soon(), report, quiet, folder)
    assert report.properties == 4
    assert list(report.finds) == ["test_it.py::test_fails"]
    [line] = report.finds.values()
    assert told == [f"found: test_it.py::test_fails\n    {line}"]  # once, as soon as it is found
    again = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True)
    assert again.returncode == 1 and "1 failed" in again.stdout, again.stdout + again.stderr


def test_tests_that_cannot_be_collected_are_a_find(folder: Path) -> None:
    (folder / "test_it.py").write_text("import nonesuch")
    report = fuzz.Report(0)
    fuzz.run_properties(1, soon(), report, quiet, folder)
    [(what, line)] = report.finds.items()
    assert "exit code" in what and fuzz.CHOSEN in shlex.split(line)


def test_a_user_can_stop_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what does not listen. The suite sees to it that nothing is left behind."""
    monkeypatch.setattr(fuzz, "PATIENCE_S", 0.1)
    (folder / "test_it.py").write_text(PROPERTIES + ENDLESS)

    def say(text: str) -> None:
        if (folder / "begun").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fuzz.run_properties(1, soon(), fuzz.Report(0), say, folder)


def test_the_time_is_over(folder: Path) -> None:
    (folder / "test_it.py").write_text(PROPERTIES)
    report = fuzz.Report(0)
    fuzz.run_properties(1, time.monotonic(), report, quiet, folder)
    assert (report.properties, report.finds) == (0, {})


def test_a_failing_seed_is_found_and_reproduced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    BUGS["delivers twice"].inject(monkeypatch)
    monkeypatch.chdir(fuzz.ROOT)
    report = fuzz.Report(0)
    path = fuzz.ROOT / "scenarios" / "partial-subscriptions.toml"
    with ThreadPool(1) as pool:
        fuzz.play_scenarios([path], Random(1), time.monotonic() + 0.2, pool, report, quiet)
    assert report.scenarios["partial-subscriptions"] >= 1
    assert list(report.finds) == ["scenario partial-subscriptions: duplicates"]
    [line] = report.finds.values()
    command, *arguments = shlex.split(line)
    assert command == ".venv/bin/unisono"
    assert unisono([*arguments, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdicts"] == {"valid": 0, "invalid": 1}


def test_an_error_in_a_scenario_is_a_find(tmp_path: Path) -> None:
    path = tmp_path / "none such.toml"
    report = fuzz.Report(0)
    with ThreadPool(1) as pool:
        fuzz.play_scenarios([path], Random(1), time.monotonic() + 0.01, pool, report, quiet)
    [line] = report.finds.values()
    *_, given, option, seeds = shlex.split(line)
    first, last = seeds.split(":")
    assert (given, option, int(last)) == (str(path), "--seeds", int(first) + 1)


def test_a_clean_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Scenarios share the time; the report is the same for people and as JSON."""
    names = ["two-topics", "total-order/static"]
    paths = [fuzz.ROOT / "scenarios" / f"{name}.toml" for name in names]
    report = fuzz.Report(7, rounds=1, properties=5)
    with ThreadPool(1) as pool:
        fuzz.play_scenarios(paths, Random(7), time.monotonic() + 0.3, pool, report, quiet)
    assert report.finds == {} and all(report.scenarios[name] >= 1 for name in names)
    fuzz.show(report, Ui(True))
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "seed": 7,
        "rounds": 1,
        "properties": 5,
        "scenarios": dict(report.scenarios),
        "finds": [],
    }
    fuzz.show(report, Ui(False))
    assert "0 finds" in capsys.readouterr().out


def test_every_scenario_but_the_long_ones_is_played() -> None:
    names = {fuzz._name(path) for path in fuzz.scenario_files()}
    assert {"two-topics", "total-order/everything"} <= names
    assert not names & fuzz.TOO_LONG
    assert all((fuzz.ROOT / "scenarios" / f"{name}.toml").exists() for name in fuzz.TOO_LONG)
