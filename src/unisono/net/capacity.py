"""How much of this machine is free, for a topic order that looks at resources."""

from __future__ import annotations

import os


def free_processor() -> int:
    """Per cent of the processors that nothing has used in the last minute; at least 1."""
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    return max(1, round(100 * (1 - busy)))
