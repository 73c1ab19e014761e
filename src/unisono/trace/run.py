"""`run.json`: what a run was and what it promised, beside its trace."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_run(folder: Path, about: dict[str, Any]) -> Path:
    """Write `run.json` into a run folder, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "run.json"
    unfinished = folder / f".run.{os.getpid()}.unfinished"
    unfinished.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    os.replace(unfinished, target)
    return target
