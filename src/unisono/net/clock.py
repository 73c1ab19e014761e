"""What time it is, for drivers; machines are told."""

from __future__ import annotations

import time


class Clock:
    """Wall-clock microseconds that never go back while the process lives."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1000
