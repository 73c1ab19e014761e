"""`unisono bench fifo`, very short."""

from __future__ import annotations

from unisono.bench import fifo


def test_every_cost_is_measured_and_judged() -> None:
    said: list[str] = []
    found = fifo.run(1, said.append, 1000, (300, 1000.0))["fifo"]
    assert len(said) == 2
    assert found["nats"]["messages"] == 300 and found["nats"]["latency_bare_ms"] > 0
    costs = (
        "publish_us",
        "receive_us",
        "in_order_us",
        "held_us",
        "heap_in_order_us",
        "bytes_per_publisher",
    )
    assert all(found[name] > 0 for name in costs)
    within = found["in_order_us"] <= 5 and found["held_us"] <= 15
    assert found["met"] is within
