"""What an experiment is, and where they are found: every module here with an EXPERIMENT or several
EXPERIMENTS.

To add one, add a file; nothing else changes.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from unisono import experiments
from unisono.errors import BadInput

MET = "met"
NOT_MET = "not met"
UNKNOWN = "unknown"  # it hangs on something that the paper does not give

# setting -> figures of the sweep's summary, such as agreement_mean
Table = Mapping[str, Mapping[str, float]]


class Claim(msgspec.Struct, frozen=True):
    """A statement of a paper, beside what was measured."""

    claim: str
    paper: str
    measured: str
    verdict: str


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """One figure or claim of a paper."""

    id: str
    title: str
    source: str  # where the paper says it
    assumed: tuple[str, ...]  # what the text leaves open and what was taken
    settings: tuple[str, ...]
    measures: tuple[str, ...]
    seeds: int  # runs per setting
    quick_seeds: int
    simulate: Callable[[str, int, bool], Mapping[str, float]]  # setting, seed, quick
    claims: Callable[[Table], list[Claim]]
    plot: Callable[[Table, Path], None]


@cache
def registry() -> dict[str, Experiment]:
    """All experiments by id, in the order of the figures."""
    found: dict[str, Experiment] = {}
    for module in pkgutil.iter_modules(experiments.__path__):
        entry: Any = importlib.import_module(f"{experiments.__name__}.{module.name}")
        one = getattr(entry, "EXPERIMENT", None)
        for experiment in getattr(entry, "EXPERIMENTS", (one,) if one is not None else ()):
            assert experiment.id not in found, f"two experiments are called {experiment.id}"
            found[experiment.id] = experiment
    return dict(sorted(found.items(), key=lambda entry: _by_number(entry[0])))


def _by_number(text: str) -> list[tuple[int, str]]:
    """So that 3.9 comes before 3.10."""
    parts = re.split(r"(\d+)", text)
    return [(int(part) if part.isdigit() else -1, part) for part in parts]


def find(experiment_id: str) -> Experiment:
    known = registry()
    if experiment_id not in known:
        raise BadInput(f"no experiment {experiment_id!r}; there are: {', '.join(known)}")
    return known[experiment_id]
