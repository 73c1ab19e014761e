"""The stateful operator behind `in_order`: packed rows of a key in, packed rows in order out.

All that is known of a key is one state value, read and written once per batch. A key has one timer
that counts: when a held row is due, or when a silent key is to be forgotten. A timer that has
become wrong is left to go off: that changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from unisono.qos.fifo.options import Fifo
from unisono.spark.packing import ROWS, read, write

if TYPE_CHECKING:
    from unisono.spark.keyed import Keyed

NUMBER, SENT, ARRIVED = "_unisono_number", "_unisono_sent", "_unisono_arrived"
STATUS, HELD_US = "status", "held_us"
STATE = "known"


class InOrder(StatefulProcessor):
    """See `in_order`."""

    def __init__(
        self, options: Fifo, event_time: bool, first: int | None, forget_us: int | None
    ) -> None:
        self._options = options
        self._event_time = event_time
        self._first = first
        self._forget_us = forget_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState(STATE, "machine binary, rows binary")

    def close(self) -> None:
        pass

    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Row]:
        keyed, held = self._known()
        fresh = pa.concat_tables([read(row[ROWS]) for row in rows])
        before = 0 if held is None else held.num_rows
        now_ms = self._now_ms(timerValues)
        numbers = _longs(fresh, NUMBER, null=-1)
        if self._event_time:
            arrived = _longs(fresh, ARRIVED, null=0)
        else:
            arrived = np.full(len(numbers), now_ms * 1000)
        # Rows that arrived together go by their numbers: the shuffle's order means nothing.
        order = np.lexsort((numbers, arrived))
        sent = fresh.column(SENT).take(pa.array(order)).to_pylist()
        rising = (before + order).tolist(), numbers[order].tolist(), sent, arrived[order].tolist()
        for place, number, sent_us, arrived_us in zip(*rising, strict=True):
            keyed.arrive(place, number, sent_us, arrived_us)
        keyed.until(now_ms * 1000)
        fresh = fresh.drop_columns([NUMBER, SENT, ARRIVED])
        rows_there = fresh if held is None else pa.concat_tables([held, fresh])
        self._set_timer(keyed, now_ms)
        self._keep(keyed, rows_there)
        yield from _gone(keyed, rows_there)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        keyed, held = self._known()
        now_ms = self._now_ms(timerValues)
        keyed.until(now_ms * 1000)
        if self._set_timer(keyed, now_ms) or keyed.places or keyed.forgotten:
            self._keep(keyed, held)
        if held is not None:
            yield from _gone(keyed, held)

    def _now_ms(self, times: TimerValues) -> int:
        """The watermark before the first row is 0."""
        if self._event_time:
            return times.getCurrentWatermarkInMs()
        return times.getCurrentProcessingTimeInMs()

    def _known(self) -> tuple[Keyed, pa.Table | None]:
        # Here, not above: the driver declares the state and needs no scipy, which takes a while.
        from unisono.spark.keyed import Keyed

        machine, rows = self._state.get() or (None, None)
        keyed = Keyed(self._options, self._first, self._forget_us, machine)
        return keyed, None if rows is None else read(rows)

    def _keep(self, keyed: Keyed, rows: pa.Table | None) -> None:
        machine = keyed.kept()
        if machine is None:
            self._state.clear()
            return
        held = keyed.held()
        kept = None
        if held and rows is not None:
            kept = write(rows.take(pa.array(held)).combine_chunks())
        self._state.update((machine, kept))

    def _set_timer(self, keyed: Keyed, now_ms: int) -> bool:
        """True if one had to be set."""
        wake_us = keyed.wake_us()
        if wake_us is None or keyed.forgotten:
            return False
        wake_ms = -(-wake_us // 1000)
        if now_ms < keyed.timer_ms <= wake_ms:
            return False
        self._handle.registerTimer(wake_ms)
        keyed.timer_ms = wake_ms
        return True


def _longs(rows: pa.Table, name: str, null: int) -> npt.NDArray[np.int64]:
    longs: npt.NDArray[np.int64] = rows.column(name).fill_null(null).to_numpy()
    return longs


def _gone(keyed: Keyed, rows: pa.Table) -> Iterator[Row]:
    """What goes, in order, as one packed row."""
    if keyed.places:
        going = rows.take(pa.array(keyed.places))
        going = going.append_column(STATUS, pa.array(keyed.statuses, pa.string()))
        going = going.append_column(HELD_US, pa.array(keyed.waits_us, pa.int64()))
        yield Row(**{ROWS: write(going.combine_chunks())})
