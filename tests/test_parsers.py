"""Whatever comes from outside, damaged: it is read, or refused with an error of ours.

The samples are valid. The suite tries a few hundred changes of each, `make fuzz` others.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import dpkt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.mutations import as_file, mutants
from support.nonsense import nonsense
from support.seeds import some

from unisono.cases.port_scan.pcap import captured
from unisono.core.events import Event
from unisono.core.predicate import parse
from unisono.core.wire import Codec, Rejected
from unisono.ens.scribe import messages as scribe
from unisono.errors import UnisonoError
from unisono.net import names
from unisono.net.bundle import bundles, frames_of
from unisono.net.connect import connect
from unisono.net.keys import make_key, read_key
from unisono.pipeline import history
from unisono.pipeline.locate import find_parts
from unisono.pipeline.read import read_run
from unisono.qos.total_order.layer import TotalOrder
from unisono.sim.scenario import load_scenario

ROOT = Path(__file__).parents[1]
EXAMPLES = some(2000)
DEEP = "[" * 100_000

PREDICATES = (
    "symbol == 'IBM' and change > 0.5",
    "not (lot in (1, 100.0) or symbol prefix 'I')",
    "exists urgent and urgent != false",
)
ADDRESSES = ("127.0.0.1:7400", "[::1]:7400", "node-1.example:7400")
URLS = (
    "memory://a-bus",
    "nats://me:secret@127.0.0.1:4222/prefix",
    "mesh://127.0.0.1:7400,[::1]:7401?key=mesh/key",
)
CODEC = Codec(TotalOrder.controls, 1 << 20)
EVENT = Event(
    id="e", topic="t", payload=b"xyz", publisher="p", seq=7, published_us=10**15, stamp={"t": 3}
)
FRAMES = (CODEC.encode("node-1", EVENT), next(bundles([b"one", b"two" * 99])))
MESSAGES = tuple(scribe.encode(nonsense(Random(seed), ("", "a", "b"))) for seed in range(100))
TABLES = {
    "csv": "subscriber,position,event_id,delivered_us,status\nann,1,e1,1500,late\nbob,1,e1,1600,\n",
    "ndjson": '{"subscriber": "ann", "position": 1, "event_id": "e1", "delivered_us": 15}\n',
}
RUN = '{"promises": ["fifo"], "deadline_us": 5, "order": {"x.*": "total", "*": "none"}}'
STATE = (
    '{"format": 1, "audits": 2, "watermark_us": 5, "judged": {"ann": 3}, "parts": {"a": [1, 2]}, '
    '"rows": {"deliveries": 3}, "carried": {}, "verdict": "valid", '
    '"checks": {"fifo": {"verdict": "valid", "violations": 0}}, "pairs": [["ann", "bob"]]}'
)


def tried(read: Callable[..., Any], given: Any, *refusals: type[Exception]) -> None:
    """Any other error is a fault."""
    with suppress(UnisonoError, *refusals):
        read(given)


def tried_as_file(read: Callable[[Path], Any], name: str, content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        path.chmod(0o600)
        tried(read, path)


@settings(max_examples=EXAMPLES)
@given(mutants(PREDICATES))
@example("(" * 3000)
def test_predicates(text: str) -> None:
    tried(parse, text)


@settings(max_examples=EXAMPLES)
@given(mutants(ADDRESSES))
def test_addresses(text: str) -> None:
    tried(names.check, text)


@settings(max_examples=EXAMPLES)
@given(mutants(URLS))
@example("mesh://127.0.0.1:7400?key=\0mesh/key")
def test_urls_of_buses(text: str) -> None:
    tried(connect, text)


@settings(max_examples=EXAMPLES)
@given(mutants(FRAMES))
def test_frames(data: bytes) -> None:
    for frame in frames_of(data):
        tried(CODEC.decode, frame, Rejected)


@settings(max_examples=EXAMPLES)
@given(mutants(MESSAGES))
def test_messages_of_the_mesh(data: bytes) -> None:
    tried(scribe.decode, data, Rejected)


SCENARIOS = tuple(path.read_text() for path in sorted((ROOT / "scenarios").rglob("*.toml")))


@settings(max_examples=some(1000))
@given(mutants(SCENARIOS))
@example("name = " + DEEP)
@example("nodes = " + "9" * 5000)
@example('[subscribers]\nleast = 1\nmost = 1\nwhere = "in (1)"')
def test_scenarios(text: str) -> None:
    tried_as_file(load_scenario, "it.toml", as_file(text))


@pytest.mark.parametrize("format_", TABLES)
@settings(max_examples=some(600))
@given(st.data())
def test_tables_of_text(format_: str, data: st.DataObject) -> None:
    text = data.draw(mutants([TABLES[format_]]))
    tried_as_file(lambda path: find_parts(path.parent, "deliveries"), f"deliveries.{format_}",
                  as_file(text))  # fmt: skip


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 100_000, '{"position": ' + "9" * 5000 + "}"])
def test_tables_of_deep_json(text: str) -> None:
    tried_as_file(
        lambda path: find_parts(path.parent, "deliveries"), "deliveries.ndjson", text.encode()
    )


def parquet() -> bytes:
    columns: dict[str, list[Any]] = {
        "subscriber": ["ann"], "position": [1], "event_id": ["e"], "delivered_us": [2],
    }  # fmt: skip
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@settings(max_examples=some(1000))
@given(mutants([parquet()]))
def test_tables_of_parquet(data: bytes) -> None:
    tried_as_file(lambda path: find_parts(path.parent, "deliveries"), "deliveries.parquet", data)


@settings(max_examples=some(1000))
@given(mutants([RUN]))
@example('{"order": ' + DEEP)
@example('{"other": ' + DEEP)
def test_what_a_run_promises(text: str) -> None:
    tried_as_file(read_run, "run.json", as_file(text))


@settings(max_examples=some(1000))
@given(mutants([STATE]))
@example('{"format": 1, "checks": ' + '{"a":' * 100_000)
def test_states_of_audits(text: str) -> None:
    tried_as_file(lambda path: history.load(path.parent), "state.json", as_file(text))


@settings(max_examples=some(1000))
@given(st.data())
def test_keys(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        make_key(Path(folder) / "key")
        good = (Path(folder) / "key").read_text()
    tried_as_file(read_key, "key", as_file(data.draw(mutants([good]))))


def capture(kind: Any) -> bytes:
    segment = dpkt.tcp.TCP(sport=5, dport=80, flags=dpkt.tcp.TH_SYN)
    packet = dpkt.ip.IP(src=b"\1\1\1\1", dst=b"\2\2\2\2", p=6, data=segment)
    packet.len = len(packet)
    raw = bytes(dpkt.ethernet.Ethernet(type=dpkt.ethernet.ETH_TYPE_IP, data=packet))
    file = io.BytesIO()
    writer = kind(file)
    for at_s in (10.0, 11.0):
        writer.writepkt(raw, ts=at_s)
    return file.getvalue()


CAPTURES = (capture(dpkt.pcap.Writer), capture(dpkt.pcapng.Writer))


@settings(max_examples=EXAMPLES)
@given(mutants(CAPTURES))
def test_captured_packets(data: bytes) -> None:
    tried_as_file(lambda path: captured([path], None), "it.pcap", data)
