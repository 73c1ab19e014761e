"""Sites that share what they see, an engine that counts, a blacklist that goes back to all.

Sites publish their packets; two engines collect them over links that lose and delay, and Spark
detects on what the first has. Blacklisted addresses go out on the bus with their counts; whoever
has a threshold subscribes by content, also over such a link. Once on the bare bus, once with FIFO
and reliable delivery.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from unisono.cases.live import Link, Stage, bus_at, quiet, warm_up
from unisono.cases.port_scan.detect import TIMEOUT_MS, Watch, take
from unisono.cases.port_scan.traffic import Packet, Traffic
from unisono.net.bus import Bus
from unisono.net.connect import Connection, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

THRESHOLDS = (3, 5, 8)
THRESHOLD = 8  # the one that is told first
TOPIC = "blacklist"
ENGINES = 2  # the second is there for the first to recover from
PATIENCE_S = 5.0
SETTLE_S = 4.0  # sites go on to say that they are there: what is missing times out meanwhile
BEAT_S = 0.25
MODES = {
    "bare": {"order": "none", "delivery": "none"},
    "reliable": {"order": "fifo", "delivery": "reliable"},
}

NOTHING = Packet(-1, "", "", "", 0)  # seen by no site

Say = Callable[[str], None]
Heard = dict[int, dict[str, float]]  # by threshold: address -> when its blacklisting was heard


def run(
    spark: SparkSession,
    folder: Path,
    traffic: Traffic,
    link: Link,
    seed: int = 0,
    url: str | None = None,
    say: Say = lambda text: None,
) -> dict[str, dict[str, Any]]:
    """By mode: how much of the scanners is found, how much of what is found scans, and when."""
    from unisono.spark import UnisonoSource

    spark.dataSource.register(UnisonoSource)
    with bus_at(url) as server:
        return {
            mode: _watch(
                spark, folder / mode, traffic, link, seed, f"{server}/{mode}-{uuid4().hex[:8]}", say
            )
            for mode in MODES
        }


def _watch(
    spark: SparkSession,
    folder: Path,
    traffic: Traffic,
    link: Link,
    seed: int,
    url: str,
    say: Say,
) -> dict[str, Any]:
    mode = folder.name
    topics = [f"tcp.{site}" for site in range(traffic.sites)]
    heard: Heard = {threshold: {} for threshold in THRESHOLDS}

    def connection(name: str) -> Connection:
        return connect(url, name=name, **MODES[mode])  # type: ignore[arg-type]

    with Stage(seed) as stage:

        async def open_all() -> tuple[list[Callable[[], int]], list[Bus]]:
            positions = []
            for number in range(ENGINES):
                engine = await stage.open(connection("engine"), f"engine {number}", link)
                positions.append(await stage.keep(engine, folder / f"engine-{number}", topics))
            for threshold in THRESHOLDS:
                site = await stage.open(connection("watcher"), f"watcher {threshold}", link)
                await site.subscribe(TOPIC, where=f"count == {threshold}")
                stage.spawn(_listen(site, heard[threshold]))
            return positions, [await stage.open(connection(f"site-{t}"), "") for t in topics]

        positions, sites = stage.run(open_all())
        query = _query(spark, folder, url, mode)
        beats = stage.run(_publish(sites, topics, [NOTHING], 0.0))[1]
        warm_up(query)
        say(f"{mode}: {len(traffic.packets)} packets to come")
        begun_s, published = stage.run(_publish(sites, topics, traffic.packets, SETTLE_S))
        published += beats
        arrived = stage.run(quiet(positions[0], published, PATIENCE_S))
        query.processAllAvailable()
        stage.run(quiet(lambda: sum(map(len, heard.values())), 1 << 30, PATIENCE_S))
        query.stop()
    times = observable(traffic.packets)
    figures = {
        threshold: _figures(traffic.scanners, times, begun_s, heard[threshold], threshold)
        for threshold in THRESHOLDS
    }
    say(f"{mode}: {len(heard[THRESHOLD])} addresses are on the blacklist")
    return {
        **figures[THRESHOLD],
        "threshold": THRESHOLD,
        "thresholds": {str(threshold): figure for threshold, figure in figures.items()},
        "published": published,
        "arrived": arrived,
        "blacklist": sorted(heard[THRESHOLD]),
    }


async def _listen(bus: Bus, heard: dict[str, float]) -> None:
    async for event in bus:
        heard.setdefault(event.payload.decode(), time.time())


async def _publish(
    sites: Sequence[Bus], topics: Sequence[str], packets: Sequence[Packet], settle_s: float
) -> tuple[float, int]:
    """Each site what it sees, when it sees it, and that it is there: when that began, and how many
    events it took."""
    loop = asyncio.get_running_loop()
    begun, begun_s = loop.time(), time.time()
    last_s = packets[-1].at_ms / 1000 + settle_s

    async def one(number: int) -> int:
        own = [packet for packet in packets if packet.site == number]
        beats = [
            msgspec.structs.replace(NOTHING, site=number, at_ms=round(beat * BEAT_S * 1000))
            for beat in range(1 + round(last_s / BEAT_S))
        ]
        for packet in sorted([*own, *beats], key=lambda packet: packet.at_ms):
            await asyncio.sleep(begun + packet.at_ms / 1000 - loop.time())
            await sites[number].publish(topics[number], msgspec.json.encode(packet))
        await sites[number].flush()
        return len(own) + len(beats)

    return begun_s, sum(await asyncio.gather(*map(one, range(len(sites)))))


def _query(spark: SparkSession, folder: Path, url: str, mode: str) -> StreamingQuery:
    from unisono.cases.port_scan.query import blacklist, suspicions

    reader = spark.readStream.format("unisono").option("journal", str(folder / "engine-0"))
    return (
        blacklist(suspicions(reader.load()), min(THRESHOLDS))
        .writeStream.format("unisono")
        .options(bus=url, topic=TOPIC, spool=str(folder / "spool"), **MODES[mode])
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def observable(packets: Sequence[Packet]) -> dict[str, list[int]]:
    """By address: when its incomplete connections can be known, to one who misses nothing."""
    watches: dict[str, Watch] = {}
    times: dict[str, list[int]] = {}
    for packet in packets:
        watch = watches.setdefault(packet.source, Watch())
        for name, at_ms in list(watch.answered.items()):
            if at_ms + TIMEOUT_MS <= packet.at_ms:
                del watch.answered[name]
                times.setdefault(packet.source, []).append(at_ms + TIMEOUT_MS)
        if take(watch, packet.connection, packet.flag, packet.at_ms):
            times.setdefault(packet.source, []).append(packet.at_ms)
    for source, watch in watches.items():
        late = [at_ms + TIMEOUT_MS for at_ms in watch.answered.values()]
        times.setdefault(source, []).extend(late)
    return {source: sorted(found) for source, found in times.items() if found}


def _figures(
    scanners: frozenset[str] | None,
    times: dict[str, list[int]],
    begun_s: float,
    heard: dict[str, float],
    threshold: int,
) -> dict[str, float | None]:
    """Detection takes from when it was possible to when it was heard."""
    took = [
        at_s - begun_s - times[source][threshold - 1] / 1000
        for source, at_s in heard.items()
        if len(times.get(source, ())) >= threshold
    ]
    found: dict[str, float | None] = {
        "recall": None,
        "precision": None,
        "detection_s": round(median(took), 3) if took else None,
    }
    if scanners is not None:
        right = len(scanners & set(heard))
        found["recall"] = right / len(scanners) if scanners else None
        found["precision"] = right / len(heard) if heard else None
    return found
