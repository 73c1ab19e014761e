"""From a bus into a journal: subscribe, append, flush, for as long as asked.

What is written is what was notified, once: an event that its publisher published again after a
crash, under an id of its own, is left out, also if the first time was before this process began.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from unisono.core.events import Delivery
from unisono.core.limits import Limits
from unisono.core.once import Recent, is_own
from unisono.errors import EnvironmentLacks
from unisono.files import hold, is_held, replace
from unisono.journal.journal import Journal
from unisono.journal.readers import last_seen
from unisono.journal.reading import bounds, read
from unisono.net.bus import Bus
from unisono.net.connect import connect

AGAIN_S = 1.0  # between attempts to write, and looks at the readers
BATCH = 4096  # notifications that are written together, at most
_COLLECTING = "collecting"  # held by the journal's writer, once it has subscribed

Say = Callable[[str], None]


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to keep of which bus, and where."""

    url: str
    folder: str
    topics: tuple[str, ...]
    order: str = "total"
    delivery: str = "none"
    where: str | None = None
    keep_bytes: int | None = None  # see `Journal`
    linger_s: float | None = None  # stop when no reader was seen for so long


def collector(folder: Path) -> int | None:
    """The process that fills the journal and has subscribed."""
    if not is_held(folder, _COLLECTING):
        return None
    try:
        return int((folder / _COLLECTING).read_bytes())
    except FileNotFoundError:
        return None


async def keep(wish: Wish, stop: asyncio.Event, say: Say = lambda text: None) -> tuple[int, int]:
    """Fill the journal until told to stop: the first position that was written, and the next."""
    folder = Path(wish.folder)
    with Journal(folder, keep_bytes=wish.keep_bytes) as journal, ExitStack() as held:
        begun = journal.next
        if journal.repaired_bytes:
            say(f"{journal.repaired_bytes} bytes of an unfinished write were cut off")

        def subscribed() -> None:
            replace(folder / _COLLECTING, b"%d" % os.getpid())
            held.enter_context(hold(folder, _COLLECTING, "a journal"))
            say(f"writing from position {begun} on; stop it with Ctrl-C")

        watching = None
        if wish.linger_s is not None:
            watching = asyncio.ensure_future(_watch(folder, wish.linger_s, stop, say))
        try:
            async with connect(wish.url, order=wish.order, delivery=wish.delivery) as bus:
                await collect(bus, journal, wish.topics, stop, wish.where, subscribed, say)
        finally:
            (folder / _COLLECTING).unlink(missing_ok=True)
            if watching is not None:
                watching.cancel()
    return begun, journal.next


async def _watch(folder: Path, linger_s: float, stop: asyncio.Event, say: Say) -> None:
    """Stop when nobody reads any more."""
    begun = time.time()
    while True:
        left = max(begun, last_seen(folder) or 0) + linger_s - time.time()
        if left <= 0:
            break
        await asyncio.sleep(left)
    say(f"no reader was seen for {linger_s:g} s")
    stop.set()


async def collect(
    bus: Bus,
    journal: Journal,
    topics: Sequence[str],
    stop: asyncio.Event,
    where: str | None = None,
    subscribed: Callable[[], None] = lambda: None,
    trouble: Say = lambda text: None,
) -> None:
    """Write all notifications of these topics until told to stop; then what has come so far.

    A flush takes as long as the disk does, and is tried again while that is full. Meanwhile, and
    while the journal is full because its readers have not come far enough, notifications wait in
    the bus, which reads no further when they are too many.
    """
    recent = _recent(journal)
    await bus.subscribe(*topics, where=where)
    subscribed()
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while bus.waiting or not stopping.done():
            if not bus.waiting:
                coming = asyncio.ensure_future(bus.notify())
                await asyncio.wait((coming, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    continue
                journal.append(_new([coming.result()], recent))
            batch: list[Delivery] = []
            while bus.waiting and len(batch) < BATCH:
                batch.append(await bus.notify())
            journal.append(_new(batch, recent))
            await _flush(journal, stopping, trouble)
            await _wait_for_readers(journal, stopping, trouble)
    finally:
        stopping.cancel()


def _recent(journal: Journal) -> Recent:
    bound = Limits().own_ids
    recent = Recent(bound)
    first, after = bounds(journal.folder)
    for batch in read(journal.folder, max(first, after - bound), after):
        for event_id in batch["event_id"].to_pylist():
            if is_own(event_id):
                recent.again(event_id)
    return recent


def _new(batch: Sequence[Delivery], recent: Recent) -> list[Delivery]:
    return [one for one in batch if not (is_own(one.id) and recent.again(one.id))]


async def _flush(journal: Journal, stopping: asyncio.Future[Any], trouble: Say) -> None:
    """Until it is written; or, once told to stop, once."""
    said = ""
    while True:
        try:
            await asyncio.to_thread(journal.flush)
            return
        except EnvironmentLacks as error:
            if stopping.done():
                raise
            if str(error) != said:
                said = str(error)
                trouble(said)
            await asyncio.wait((stopping,), timeout=AGAIN_S)


async def _wait_for_readers(journal: Journal, stopping: asyncio.Future[Any], trouble: Say) -> None:
    if journal.full and not stopping.done():
        trouble(
            f"the journal {journal.folder} is full: waiting for its readers; remove the files in "
            "readers/ of those that are gone for good"
        )
    while journal.full and not stopping.done():
        await asyncio.wait((stopping,), timeout=AGAIN_S)
        await asyncio.to_thread(journal.retire)
