"""What `make fuzz` runs: properties, parsers and the simulator with random seeds, for a given time.

python tests/fuzz.py --minutes 10
python tests/fuzz.py --minutes 10 --seed 7 --json

It goes in rounds. Each draws a seed. The tests of Hypothesis and those marked `seeded` run with it,
in a random order, but for those that need Spark. Then scenarios are played, each for as long as the
others. The last part of the time belongs to the scenarios: tests that still run then are stopped.
Every find has a line that reproduces it. The exit code is 1 if there is a find.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from random import Random
from typing import IO

from unisono.cli.ui import Ui
from unisono.sim.many import run_totals
from unisono.sim.scenario import load_scenario

ROOT = Path(__file__).parents[1]
TOO_LONG = {"reliable/soak"}  # minutes a seed
CHOSEN = "(hypothesis or seeded) and not slow and not spark"
CORES = len(os.sched_getaffinity(0))
SEEDS = 1 << 31
TAIL = 0.25  # share of the time that only scenarios have
PATIENCE_S = 120.0  # for what should end by itself, also on a busy machine
LOOK_S = 0.2

_LINE = re.compile(r"^\[gw\d+\] \[ *\d+%\] (PASSED|FAILED|ERROR) (\S.*?) *$", re.MULTILINE)
Say = Callable[[str], None]


@dataclass
class Report:
    """What was run and found. Finds of one kind are one, with the line of the first."""

    seed: int
    rounds: int = 0
    properties: int = 0
    scenarios: Counter[str] = field(default_factory=Counter)  # seeds
    finds: dict[str, str] = field(default_factory=dict)  # what -> how to reproduce it
    times: Counter[str] = field(default_factory=Counter)
    tell: Say = lambda _: None  # a find, when it is new

    def find(self, what: str, reproduce: str) -> None:
        if what not in self.finds:
            self.finds[what] = reproduce
            self.tell(f"found: {what}\n    {reproduce}")
        self.times[what] += 1

    def to_json(self) -> dict[str, object]:
        finds = [
            {"what": what, "times": self.times[what], "reproduce": line}
            for what, line in self.finds.items()
        ]
        return {
            "seed": self.seed,
            "rounds": self.rounds,
            "properties": self.properties,
            "scenarios": dict(sorted(self.scenarios.items())),
            "finds": finds,
        }


def run_properties(seed: int, until: float, report: Report, say: Say, folder: Path = ROOT) -> None:
    """Run the tests once with this seed; what still runs at that time is stopped."""
    given = {"UNISONO_PROFILE": "fuzz", "UNISONO_SEED": str(seed), "PYTHONHASHSEED": "0"}
    options = ["-vv", "--tb=no", "-n", str(CORES), f"--hypothesis-seed={seed}", "-m", CHOSEN]
    with tempfile.TemporaryFile("w+") as output:
        tests = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options],
            cwd=folder,
            env={**os.environ, **given, "UNISONO_SHUFFLE": str(seed)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            ended = _watch(tests, output, until, say)
            found = _read(output)
        finally:
            _stop(tests)
    report.properties += len(found)
    before = " ".join(f"{name}={value}" for name, value in given.items())
    begin = f"{before} .venv/bin/python -m pytest"
    failed = [name for outcome, name in found if outcome != "PASSED"]
    for name in failed:
        report.find(name, f"{begin} {shlex.quote(name)} --hypothesis-seed={seed}")
    if ended and tests.returncode and not failed:
        what = f"the tests ended with exit code {tests.returncode}"
        report.find(what, f"{begin} -m {shlex.quote(CHOSEN)} --hypothesis-seed={seed}")


def _watch(tests: subprocess.Popen[bytes], output: IO[str], until: float, say: Say) -> bool:
    """Wait for the end of the tests; False if the time is over before."""
    while time.monotonic() < until:
        with suppress(subprocess.TimeoutExpired):
            tests.wait(LOOK_S)
            return True
        say(f"{len(_read(output))} properties")
    return False


def _read(output: IO[str]) -> list[tuple[str, str]]:
    """The outcomes and names of the tests that have ended."""
    output.seek(0)
    found: list[tuple[str, str]] = _LINE.findall(output.read())
    return found


def _stop(tests: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, so that the tests clean up; then what is left of their processes."""
    if tests.poll() is None:
        tests.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            tests.wait(PATIENCE_S)
    with suppress(ProcessLookupError):
        os.killpg(tests.pid, signal.SIGKILL)
    tests.wait()


def scenario_files() -> list[Path]:
    every = sorted((ROOT / "scenarios").rglob("*.toml"))
    return [path for path in every if _name(path) not in TOO_LONG]


def _name(path: Path) -> str:
    scenarios = ROOT / "scenarios"
    known = path.is_relative_to(scenarios)
    return str((path.relative_to(scenarios) if known else path).with_suffix(""))


def play(path: Path, seed: int) -> tuple[float, str]:
    """How many seconds one seed of a scenario took, and what is wrong with it."""
    begun = time.monotonic()
    try:
        failures = run_totals(load_scenario(path), range(seed, seed + 1)).failures
        wrong = ", ".join(sorted({failure["check"] for failure in failures}))
    except Exception as error:  # whatever it is, it is a find
        wrong = type(error).__name__
    return time.monotonic() - begun, wrong


def play_scenarios(
    paths: Sequence[Path], rng: Random, until: float, pool: Pool, report: Report, say: Say
) -> None:
    """Fresh seeds of scenarios, each scenario for as long as the others."""
    spent = dict.fromkeys(paths, 0.0)
    waiting: list[tuple[Path, int, AsyncResult[tuple[float, str]]]] = []
    patience = until + PATIENCE_S
    while time.monotonic() < until or waiting:
        while time.monotonic() < until and len(waiting) < 2 * CORES:
            played = {path for path, *_ in waiting}
            path = min(paths, key=lambda path: (path in played, spent[path]))
            seed = rng.randrange(SEEDS)
            waiting.append((path, seed, pool.apply_async(play, (path, seed))))
        path, seed, result = waiting.pop(0)
        result.wait(max(0.0, patience - time.monotonic()))
        seconds, wrong = result.get() if result.ready() else (0.0, "does not end")
        spent[path] += seconds
        report.scenarios[_name(path)] += 1
        if wrong:
            short = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            line = f".venv/bin/unisono sim {shlex.quote(str(short))} --seeds {seed}:{seed + 1}"
            report.find(f"scenario {_name(path)}: {wrong}", line)
        say(f"{sum(report.scenarios.values())} seeds of scenarios")


def explore(minutes: float, seed: int, ui: Ui) -> Report:
    """Rounds until the time is over."""
    report, rng = Report(seed, tell=ui.remark), Random(seed)
    begun = time.monotonic()
    end = begun + 60 * minutes
    tail = end - TAIL * 60 * minutes
    paths = scenario_files()
    with ui.progress() as progress:
        bar = progress.add_task("seconds", total=round(60 * minutes))

        def say(what: str) -> None:
            done = round(time.monotonic() - begun)
            about = f"round {report.rounds}: {what}, {len(report.finds)} finds"
            progress.update(bar, completed=done, description=about)

        while time.monotonic() < end:
            report.rounds += 1
            this, started = rng.randrange(SEEDS), time.monotonic()
            if started < tail:
                run_properties(this, tail, report, say)
            now = time.monotonic()
            until = min(end, now + TAIL * (now - started)) if now < tail else end
            rng.shuffle(paths)
            with get_context("spawn").Pool(CORES) as pool:  # anew: one may be stuck
                play_scenarios(paths, rng, until, pool, report, say)
            seeds = sum(report.scenarios.values())
            ui.remark(
                f"round {report.rounds}, seed {this}: {report.properties} properties, "
                f"{seeds} seeds of scenarios, {len(report.finds)} finds so far"
            )
    return report


def show(report: Report, ui: Ui) -> None:
    ui.emit(report.to_json())
    ui.show(f"seed {report.seed}: {report.rounds} rounds, {report.properties} properties run")
    for name, seeds in sorted(report.scenarios.items()):
        ui.show(f"{seeds:7} seeds of {name}")
    ui.show(f"{len(report.finds)} finds" + (", to reproduce by" if report.finds else ""))
    for what, line in report.finds.items():
        ui.show(f"{what} ({report.times[what]} times)")
        ui.show(f"    {line}")


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes up to 10000")
    return minutes


def _seed(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: a whole number, not negative")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz.py", description="random exploration")
    parser.add_argument("--minutes", type=_minutes, required=True, metavar="N", help="how long")
    parser.add_argument("--seed", type=_seed, metavar="S", help="of all that is drawn; random")
    parser.add_argument("--json", action="store_true", help="the report as JSON on stdout")
    args = parser.parse_args(argv)
    ui = Ui(args.json)
    seed = Random().randrange(SEEDS) if args.seed is None else args.seed
    ui.remark(f"seed {seed}")
    report = explore(args.minutes, seed, ui)
    show(report, ui)
    return 1 if report.finds else 0


if __name__ == "__main__":
    sys.exit(main())
