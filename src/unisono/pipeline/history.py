"""What the audits of a growing trace leave behind: which parts they have seen, and all verdicts.

The folder holds `audits.ndjson`, a line per audit, `context-<n>/`, a small trace of rows that may
still matter (see `context.py`), and `state.json`, which says how far audit n got. Replacing
`state.json` is what makes an audit count: one that is killed before is repeated with the same
outcome, as what it left is written anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from unisono.errors import UNDECODABLE, BadInput
from unisono.files import replace
from unisono.pipeline.report import Report, Verdict, worst
from unisono.trace.schema import DELIVERIES, GLOBAL_ORDER, PUBLICATIONS

FORMAT = 1
Part = tuple[int, int]  # its bytes, and when it was changed, in nanoseconds


class Sofar(msgspec.Struct, frozen=True):
    """A check over all audits since the whole trace was last looked at."""

    verdict: Verdict
    violations: int | None  # None if it was never judged


class State(msgspec.Struct, frozen=True):
    """How far the audits have come."""

    format: int
    audits: int
    watermark_us: int  # events published before are judged for losses
    judged: dict[str, int]  # by subscriber: the first position that is not yet judged
    parts: dict[str, Part]  # by path inside the trace
    rows: dict[str, int]  # of the trace so far
    carried: dict[str, int]  # rows of the context
    verdict: Verdict
    checks: dict[str, Sofar]
    pairs: list[tuple[str, str]]  # of subscribers that disagree


def load(folder: Path) -> State | None:
    """The state that the last audit left, or None before the first."""
    file = folder / "state.json"
    if not file.exists():
        return None
    try:
        state = msgspec.json.decode(file.read_bytes(), type=State)
    except (*UNDECODABLE, OSError) as error:
        raise BadInput(f"{file}: not the state of an audit: {error}") from error
    if state.format != FORMAT:
        raise BadInput(f"{file}: format {state.format}, expected {FORMAT}; remove {folder}")
    return state


def context_folder(folder: Path, audit: int) -> Path:
    return folder / f"context-{audit:06d}"


def survey(root: Path, files: Iterable[Path]) -> dict[str, Part]:
    """The parts as they are now."""
    found = {}
    for file in files:
        about = file.stat()
        found[file.relative_to(root).as_posix()] = (about.st_size, about.st_mtime_ns)
    return found


def new_parts(root: Path, before: dict[str, Part], now: dict[str, Part]) -> list[Path]:
    """The parts that came since; refuses a trace whose old parts are not what they were."""
    for name, part in before.items():
        if name not in now:
            raise BadInput(f"{root / name}: audited before, but now it is gone")
        if now[name] != part:
            raise BadInput(f"{root / name}: changed since it was audited; parts are only added")
    return [root / name for name in now if name not in before]


def sum_up(
    before: State | None, report: Report, pairs: set[tuple[str, str]]
) -> tuple[Verdict, dict[str, Sofar], list[tuple[str, str]]]:
    """The verdicts so far: overall, by check, and the pairs that disagree.

    Violations add up, as each is counted by one audit only. Those of order are looked at again
    while they are in the context: pairs are kept by name, and of knots the most seen at once.
    """
    pairs = pairs.union(before.pairs if before else ())
    checks = {}
    for name, check in report.checks.items():
        then = before.checks.get(name) if before else None
        both = (check.violations, then.violations if then else None)
        counts = [count for count in both if count is not None]
        total = (max(counts) if name == GLOBAL_ORDER else sum(counts)) if counts else None
        if name == "total-order":
            total = len(pairs)
        verdict = worst([check.verdict, *([then.verdict] if then else [])])
        checks[name] = Sofar(verdict, total)
    overall = worst([report.verdict, *([before.verdict] if before else [])])
    return overall, checks, sorted(pairs)


def commit(folder: Path, state: State, entry: dict[str, Any]) -> None:
    """Add the entry to the history and make the state the current one."""
    history = folder / "audits.ndjson"
    lines = history.read_bytes().splitlines()[: state.audits - 1] if history.exists() else []
    replace(history, b"".join(line + b"\n" for line in [*lines, msgspec.json.encode(entry)]))
    replace(folder / "state.json", msgspec.json.encode(state))
    for old in folder.glob("context-*"):
        if old != context_folder(folder, state.audits):
            shutil.rmtree(old)


def carried_rows(folder: Path) -> dict[str, int]:
    """How many rows a context has, by its footers."""
    import pyarrow.parquet as pq

    return {
        table: sum(pq.read_metadata(file).num_rows for file in (folder / table).glob("*.parquet"))
        for table in (PUBLICATIONS, DELIVERIES)
    }
