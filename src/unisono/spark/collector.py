"""The process that fills a source's journal. It is not the driver's: a driver that is killed, and
a query that stands still, lose nothing meanwhile.

A query starts it if nobody writes the journal, and again if it died. It ends when no query was seen
for `lingerS`. Its options come on standard input, so that no process list shows credentials; what
it has to say is in `collector.log` beside the journal.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from unisono.errors import EnvironmentLacks
from unisono.journal.journal import written
from unisono.net.collect import Wish, collector

LOG = "collector.log"
BEGIN_S = 60.0
_LOOK_S = 0.05


def ensure(wish: Wish) -> None:
    """Return once somebody has subscribed and writes the journal."""
    folder = Path(wish.folder)
    if collector(folder) is not None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    process = _start(wish, folder)
    until = time.monotonic() + BEGIN_S
    while collector(folder) is None:
        if process.poll() is not None and not written(folder):
            raise EnvironmentLacks(f"nothing can be collected: {_last_words(folder)}")
        if time.monotonic() > until:
            raise EnvironmentLacks(
                f"nobody has subscribed within {BEGIN_S:g} s; see {folder / LOG}"
            )
        time.sleep(_LOOK_S)


def _start(wish: Wish, folder: Path) -> subprocess.Popen[bytes]:
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "unisono.net.keeper"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(wish))
    process.stdin.close()
    return process


def _last_words(folder: Path) -> str:
    lines = (folder / LOG).read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no reason was given"
