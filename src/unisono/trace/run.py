"""`run.json`: what a run was and what it promised, beside its trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unisono.files import replace


def write_run(folder: Path, about: dict[str, Any]) -> Path:
    """Write `run.json` into a run folder, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "run.json"
    replace(target, (json.dumps(about, indent=2) + "\n").encode())
    return target
