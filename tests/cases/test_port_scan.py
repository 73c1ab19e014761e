"""Port scans: the machine, captured files, and detection on a real bus."""

from __future__ import annotations

import socket
from pathlib import Path

import dpkt
import pytest
from pyspark.sql import SparkSession

from unisono.cases.live import Link
from unisono.cases.port_scan.detect import OPEN_MAX, TIMEOUT_MS, Watch, expire, take
from unisono.cases.port_scan.pcap import captured
from unisono.cases.port_scan.run import observable, run
from unisono.cases.port_scan.traffic import ACK, RST, SYN, SYN_ACK, Wish, generate
from unisono.errors import BadInput


def count(flags: list[str], later_ms: int = 0) -> int:
    watch = Watch()
    for at_ms, flag in enumerate(flags):
        take(watch, "c", flag, at_ms)
    expire(watch, len(flags) + later_ms)
    return watch.incomplete


def test_incomplete_connections() -> None:
    assert count([SYN, SYN_ACK, RST]) == 1
    assert count([SYN, SYN_ACK, ACK, RST]) == 0
    assert count([SYN, SYN_ACK]) == 0
    assert count([SYN, SYN_ACK], TIMEOUT_MS) == 1  # also if an ACK was lost
    assert count([SYN], TIMEOUT_MS) == 0


@pytest.mark.parametrize(
    "flags", [[SYN, RST], [SYN_ACK, RST], [SYN_ACK, SYN, RST], [SYN, RST, SYN_ACK]]
)
def test_a_lost_or_early_packet_hides_the_pattern(flags: list[str]) -> None:
    assert count(flags, TIMEOUT_MS) == 0


def test_what_is_watched_has_a_bound() -> None:
    watch = Watch()
    for number in range(2 * OPEN_MAX):
        take(watch, f"c{number}", SYN, number)
        take(watch, f"d{number}", SYN, number)
        take(watch, f"d{number}", SYN_ACK, number)
    assert len(watch.begun) <= OPEN_MAX and len(watch.answered) <= OPEN_MAX


def test_generated_scanners_are_the_ones_with_many() -> None:
    traffic = generate(Wish(seed=3))
    assert traffic == generate(Wish(seed=3))
    assert traffic.scanners is not None
    times = observable(traffic.packets)
    assert {source for source, found in times.items() if len(found) >= 8} == traffic.scanners
    assert {len(times[scanner]) for scanner in traffic.scanners} == {12}
    sites = {(p.source, p.site) for p in traffic.packets if p.source in traffic.scanners}
    assert len(sites) == 12 * 4


def frame(source: str, target: str, ports: tuple[int, int], flags: int) -> bytes:
    segment = dpkt.tcp.TCP(sport=ports[0], dport=ports[1], flags=flags)
    packet = dpkt.ip.IP(
        src=socket.inet_aton(source), dst=socket.inet_aton(target), p=6, data=segment
    )
    packet.len = len(packet)
    return bytes(dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_IP, data=packet))


def test_captured_files(tmp_path: Path) -> None:
    syn, ack, rst, fin = dpkt.tcp.TH_SYN, dpkt.tcp.TH_ACK, dpkt.tcp.TH_RST, dpkt.tcp.TH_FIN
    there, back = ("1.1.1.1", "2.2.2.2", (5, 80)), ("2.2.2.2", "1.1.1.1", (80, 5))
    packets = [
        (10.0, frame(*there, syn)),
        (10.1, frame(*back, syn | ack)),
        (10.2, frame(*there, rst)),
        (10.3, frame(*there, ack)),  # of a connection that is over
        (10.4, frame(*back, fin)),
        (10.5, b"x" * 60),
    ]
    path = tmp_path / "site.pcap"
    with path.open("wb") as file:
        writer = dpkt.pcap.Writer(file)
        for at_s, raw in packets:
            writer.writepkt(raw, ts=at_s)
    traffic = captured([path, path], frozenset({"1.1.1.1"}))
    assert traffic.sites == 2
    own = [packet for packet in traffic.packets if packet.site == 1]
    assert [(packet.flag, packet.at_ms) for packet in own] == [
        (SYN, 0),
        (SYN_ACK, 100),
        (RST, 200),
    ]
    assert {(packet.source, packet.connection) for packet in own} == {("1.1.1.1", "2.2.2.2:80<5")}
    path.write_bytes(b"no capture")
    with pytest.raises(BadInput, match=r"site\.pcap"):
        captured([path], None)


@pytest.mark.slow
def test_scanners_are_found_where_the_bus_is_reliable(spark: SparkSession, tmp_path: Path) -> None:
    wish = Wish(seconds=8.0, connections_per_s=30.0, clients=40, scanners=6)
    found = run(spark, tmp_path, generate(wish), Link(loss=0.1, delay_ms=10.0))
    bare, reliable = found["bare"], found["reliable"]
    assert bare["arrived"] < bare["published"]
    assert reliable["recall"] == 1.0
    assert reliable["precision"] == 1.0
    assert (bare["recall"] or 0) < 1.0
    assert set(reliable["thresholds"]) == {"3", "5", "8"}
