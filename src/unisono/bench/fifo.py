"""`unisono bench fifo`: what probabilistic FIFO costs per message, beside a plain reorder buffer.

In-order messages: numbering, encoding, decoding and receiving them, with the estimate of delays and
a record of 25, less what encoding and decoding take without the layer. Held ones: every other
message comes before its predecessor, which the estimate has to decide on; a held message's cost is
that of a pair less that of one in order. The peer is a heap by sequence number, without statuses,
bounds, samples or latches. Medians of several runs in
which all take turns, in processor time. Memory: what a receiver keeps of one publisher. And, told,
not judged: how many violations are left where parallel workers reorder messages (`reordering.py`).
"""

from __future__ import annotations

import heapq
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from unisono.bench import reordering
from unisono.bench.machine import machine
from unisono.core.effects import Notify, Publish
from unisono.core.events import Event, Status
from unisono.core.wire import Codec
from unisono.errors import EnvironmentLacks
from unisono.qos.fifo.layer import ProbabilisticFifo
from unisono.qos.fifo.options import Fifo

RUNS = 5
MESSAGES = 20_000
PUBLISHERS = 500
IN_ORDER_MAX_US, HELD_MAX_US = 5.0, 15.0
_SPACING_US, _DELAY_US = 1000, 5000


def run(
    runs: int,
    remark: Callable[[str], None],
    messages: int = MESSAGES,
    real: tuple[int, float] = (reordering.MESSAGES, reordering.RATE_PER_S),
) -> dict[str, Any]:
    """Measure everything; the JSON object of the command. `real`: messages on NATS, and how many
    a second."""
    plain = [Event(f"p-{n}", "t", b"", "p", n, n * _SPACING_US) for n in range(1, messages + 1)]
    events = _numbered(plain)
    swapped = [events[index ^ 1] for index in range(messages)]
    works: dict[str, Callable[[], float]] = {
        "publish": lambda: _publish(plain),
        "wire": lambda: _wire(events),
        "wire_bare": lambda: _wire(plain),
        "receive": lambda: _receive(events),
        "pair": lambda: 2 * _receive(swapped),
        "heap_in_order": lambda: _reorder(events),
        "heap_pair": lambda: 2 * _reorder(swapped),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(runs):
        for name, work in works.items():
            times[name].append(work())
    found = {name: statistics.median(values) for name, values in times.items()}
    wire = max(0.0, found["wire"] - found["wire_bare"])
    in_order = found["publish"] + wire + found["receive"]
    held = found["pair"] - found["receive"]
    remark(f"{in_order:.2f} us per message in order, {held:.2f} us per held one")
    remark("parallel workers on NATS ...")
    try:
        nats: dict[str, Any] | str = reordering.measure(*real)
    except EnvironmentLacks as error:
        nats = f"not measured: {error}"
    result = {
        "messages": messages,
        "publish_us": round(found["publish"], 2),
        "wire_us": round(wire, 2),
        "receive_us": round(found["receive"], 2),
        "in_order_us": round(in_order, 2),
        "held_us": round(held, 2),
        "heap_in_order_us": round(found["heap_in_order"], 2),
        "heap_held_us": round(found["heap_pair"] - found["heap_in_order"], 2),
        "ratio_in_order": round(in_order / found["heap_in_order"], 1),
        "bytes_per_publisher": _memory(),
        "nats": nats,
        "targets": {"in_order_us_max": IN_ORDER_MAX_US, "held_us_max": HELD_MAX_US},
        "met": in_order <= IN_ORDER_MAX_US and held <= HELD_MAX_US,
    }
    return {"machine": machine(), "fifo": result}


def _numbered(plain: Sequence[Event]) -> list[Event]:
    layer = ProbabilisticFifo("p", Fifo())
    found = []
    for event in plain:
        (effect,) = layer.publish(event, event.published_us)
        assert isinstance(effect, Publish)
        found.append(effect.event)
    return found


def _publish(plain: Sequence[Event]) -> float:
    layer = ProbabilisticFifo("p", Fifo())
    started = time.process_time()
    for event in plain:
        layer.publish(event, event.published_us)
    return (time.process_time() - started) / len(plain) * 1e6


def _wire(events: Sequence[Event]) -> float:
    """Encoding and decoding."""
    codec = Codec((), 1 << 20)
    started = time.process_time()
    for event in events:
        codec.decode(codec.encode("p", event))
    return (time.process_time() - started) / len(events) * 1e6


def _receive(events: Sequence[Event]) -> float:
    """Microseconds per message; delays vary by some milliseconds, so that holds are not 0."""
    layer = ProbabilisticFifo("r", Fifo())
    layer.subscribe(("t",), None, 0)
    rng = Random(1)
    arrivals = [
        (event, index * _SPACING_US + _DELAY_US + rng.randrange(_SPACING_US // 2))
        for index, event in enumerate(events)
    ]
    notified = 0
    notify = layer.notify
    started = time.process_time()
    for event, now in arrivals:
        for effect in notify(event, Status.IN_ORDER, now):
            notified += type(effect) is Notify
    taken = time.process_time() - started
    assert notified >= len(events) - 1
    return taken / len(events) * 1e6


def _reorder(events: Sequence[Event]) -> float:
    """The same with a heap by sequence number."""
    waiting: list[tuple[int, Event]] = []
    expected, notified = 1, 0
    started = time.process_time()
    for event in events:
        heapq.heappush(waiting, (event.seq, event))
        while waiting and waiting[0][0] == expected:
            heapq.heappop(waiting)
            expected += 1
            notified += 1
    taken = time.process_time() - started
    assert notified == len(events)
    return taken / len(events) * 1e6


def _memory() -> int:
    """Bytes that a receiver keeps of a publisher with a full window and nothing held."""
    layer = ProbabilisticFifo("r", Fifo())
    layer.subscribe(("t",), None, 0)
    streams = []
    for index in range(PUBLISHERS):
        publisher = ProbabilisticFifo(f"p{index}", Fifo())
        for number in range(1, 301):
            event = Event(f"p{index}-{number}", "t", b"", f"p{index}", number, number * 1000)
            (effect,) = publisher.publish(event, event.published_us)
            assert isinstance(effect, Publish)
            streams.append(effect.event)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for event in streams:
        list(layer.notify(event, Status.IN_ORDER, event.published_us + 5000 + event.seq % 7))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return round((after - before) / PUBLISHERS)
