"""The detection as a streaming query: packets in, addresses with their counts out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from unisono.cases.port_scan.detect import TIMEOUT_MS, Watch, expire, take

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUSPICIONS = "source string, count bigint"
SETTLED = "1 second"  # packets come with no more than that between them


def suspicions(events: DataFrame) -> DataFrame:
    """Every time an address has one more incomplete connection: the address and how many."""
    from pyspark.sql import functions as F

    packet = F.from_json(
        F.col("payload").cast("string"), "source string, connection string, flag string"
    )
    return (
        events.select(
            "position",
            "published",
            F.unix_millis("published").alias("at_ms"),
            packet.alias("packet"),
        )
        .select("position", "published", "at_ms", "packet.*")
        .withWatermark("published", SETTLED)
        .groupBy("source")
        .transformWithState(
            statefulProcessor=Detector(),
            outputStructType=SUSPICIONS,
            outputMode="Append",
            timeMode="EventTime",
        )
    )


def blacklist(found: DataFrame, least: int) -> DataFrame:
    """As the sink takes it: the address, and the count as an attribute to subscribe by."""
    from pyspark.sql import functions as F

    return found.where(F.col("count") >= least).select(
        F.col("source").alias("payload"),
        F.create_map(F.lit("count"), F.col("count")).alias("attributes"),
    )


class Detector(StatefulProcessor):
    """Runs the machine of each address over its packets, in the order of positions."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._watch = handle.getValueState("watch", "encoded binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        watch = self._load()
        for row in sorted(rows, key=lambda row: row.position):
            if take(watch, row.connection, row.flag, row.at_ms):
                yield Row(source=key[0], count=watch.incomplete)
        self._save(watch)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        watch = self._load()
        before = watch.incomplete
        expire(watch, timerValues.getCurrentWatermarkInMs())  # all that are over, not just one
        for count in range(before + 1, watch.incomplete + 1):
            yield Row(source=key[0], count=count)
        self._save(watch)

    def _load(self) -> Watch:
        known = self._watch.get()
        return Watch() if known is None else msgspec.msgpack.decode(known[0], type=Watch)

    def _save(self, watch: Watch) -> None:
        self._watch.update((msgspec.msgpack.encode(watch),))
        if watch.answered:
            self._handle.registerTimer(min(watch.answered.values()) + TIMEOUT_MS)

    def close(self) -> None:
        pass
