"""`unisono bench delivery`, very short."""

from __future__ import annotations

from unisono.bench import delivery


def test_every_run_is_measured_and_judged() -> None:
    said: list[str] = []
    result = delivery.run(2, said.append, {delivery.SMALL: 5})
    runs = result["delivery"]["runs"]
    assert runs.keys() == {"push, 40 nodes", "pull, 40 nodes"} and len(said) == 2
    assert all(one["success"] == 1 and one["packets"] > 5 * 16 * 39 for one in runs.values())
    assert result["delivery"]["met"] is all(one["met"] for one in runs.values())
