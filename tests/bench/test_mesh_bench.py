"""`unisono bench mesh`, very short."""

from __future__ import annotations

import pytest

from unisono.bench import datagrams, latency


def test_sealed_datagrams_are_counted_between_two_processes() -> None:
    said: list[str] = []
    found = datagrams.run(1, said.append, messages=200)
    assert len(said) == 2
    for name in ("batched", "single"):
        one = found[name]
        # the first event is not counted; 16 datagrams and a bit for each of the others
        assert 199 * 16 <= one["datagrams"] < 199 * 20
        assert one["datagrams_per_cpu_s"] > 0 and one["events_per_s"] > 0 and not one["rejected"]
    assert found["met"] is (found["batched"]["datagrams_per_cpu_s"] >= datagrams.DATAGRAMS_MIN)


@pytest.mark.parametrize("system", latency.SYSTEMS)
def test_every_bus_delivers_all_to_all(system: str) -> None:
    found = latency.measure(system, events=5, subscribers=2)
    assert 0 < found["p50_ms"] <= found["p99_ms"]
