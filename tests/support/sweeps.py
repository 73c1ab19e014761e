"""Made-up experiments for sweeps. As a program: a sweep that is there to be killed.

Spark's workers cannot import this folder. So what they run is defined inside functions: then it
travels as code, not by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import uuid4

from unisono.experiments import registry
from unisono.experiments.registry import Claim, Experiment, Table
from unisono.pipeline.sweep import Known

Simulate = Callable[[str, int, bool], Mapping[str, float]]


def made_up(simulate: Simulate, seeds: int, settings: Mapping[str, tuple[str, ...]]) -> Known:
    """Experiments, by id with their settings, that share their runs."""

    def claims(table: Table) -> list[Claim]:
        mean = sum(row["value_mean"] for row in table.values()) / len(table)
        return [Claim("it has a mean", "any", f"{mean:g}", registry.MET)]

    def plot(table: Table, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<svg/>")

    def known() -> dict[str, Experiment]:
        return {
            name: Experiment(
                id=name,
                title="made up",
                source="nowhere",
                assumed=(),
                settings=those,
                measures=("value", "value.squared"),
                seeds=2 * seeds,
                quick_seeds=seeds,
                simulate=simulate,
                claims=claims,
                plot=plot,
            )
            for name, those in settings.items()
        }

    return known


def value(setting: str, seed: int) -> float:
    return 100.0 * int(setting) + seed


def counted(calls: Path, fails: tuple[str, int] | None = None) -> Simulate:
    """A run that leaves a file in `calls` each time, and may raise or kill its worker."""
    calls.mkdir(exist_ok=True)

    def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
        (calls / f"{setting}-{seed}-{uuid4()}").touch()
        if (setting, seed) == fails:
            raise ZeroDivisionError("as told")
        found = 100.0 * int(setting) + seed
        return {"value": found, "value.squared": found**2, "other": 0.0}

    return simulate


def deadly(setting: str, seed: int) -> Simulate:
    wanted = (setting, seed)

    def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
        if (setting, seed) == wanted:
            os._exit(1)
        return {"value": float(seed), "value.squared": 0.0}

    return simulate


def gated(folder: Path, calls: str = "calls") -> Known:
    """All runs end but the last, which waits for a file `gate`."""
    counts = counted(folder / calls)
    gate = folder / "gate"

    def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
        from time import sleep

        found = counts(setting, seed, quick)
        while (setting, seed) == ("1", 7) and not gate.exists():
            sleep(0.05)
        return found

    return made_up(simulate, 8, {"made-up": ("0", "1")})


if __name__ == "__main__":
    from unisono.cli.main import main

    folder = Path(sys.argv[1])
    registry.registry = gated(folder)  # type: ignore[assignment]
    main(["reproduce", "all", "--quick", "--json", "--out", str(folder / "out")])
