"""The machine that figures were measured on."""

from __future__ import annotations

import os
import platform
from typing import Any

from unisono.pipeline.session import cores


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": cores(),
        "memory_gb": round(memory / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
