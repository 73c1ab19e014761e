"""What Spark forks its Python workers from on this machine: `python -m unisono.pipeline.daemon`.

Spark's own daemon has a worker look for garbage after each task, among all that it has ever
loaded: with numba that takes longer than most tasks. Here what is still there when a task is done
is frozen, so that nobody looks at it again.
"""

from __future__ import annotations

import gc
import socket

from pyspark import daemon

_work = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Do one task. Its garbage goes first, so none is kept."""
    code = _work(sock, authenticated)
    gc.collect()
    gc.freeze()
    return code


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
