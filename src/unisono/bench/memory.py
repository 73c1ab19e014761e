"""How much memory the processes under this one take at most: Java, and each Python worker."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_LOOK_S = 0.25
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Peak:
    """Looks four times a second while it is entered. Linux only: elsewhere it sees nothing."""

    def __init__(self) -> None:
        self.java_bytes = 0
        self.worker_bytes = 0  # of one
        self.all_bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def gib(self) -> dict[str, float]:
        sizes = {"java": self.java_bytes, "worker": self.worker_bytes, "all": self.all_bytes}
        return {name: round(size / 2**30, 2) for name, size in sizes.items()}

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_S):
            java, workers = _sizes(os.getpid())
            self.java_bytes = max(self.java_bytes, sum(java))
            self.worker_bytes = max(self.worker_bytes, *workers, 0)
            self.all_bytes = max(self.all_bytes, sum(java) + sum(workers))


def _sizes(root: int) -> tuple[list[int], list[int]]:
    """Resident bytes of all descendants: those that are Java, and the others."""
    found: dict[int, tuple[int, str, int]] = {}  # process -> parent, name, bytes
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        found[int(folder.name)] = int(fields[1]), name, int(fields[21]) * _PAGE
    java: list[int] = []
    others: list[int] = []
    for process, (_, name, size) in found.items():
        at = process
        while at in found and at != root:
            at = found[at][0]
        if at == root and process != root:
            (java if name == "java" else others).append(size)
    return java, others
