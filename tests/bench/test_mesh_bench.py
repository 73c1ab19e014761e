"""`unisono bench mesh`, very short."""

from __future__ import annotations

from unisono.bench import mesh


def test_sealed_datagrams_are_counted_between_two_processes() -> None:
    said: list[str] = []
    found = mesh.run(1, said.append, messages=200)["mesh"]
    assert len(said) == 2
    for name in ("batched", "single"):
        one = found[name]
        # the first event is not counted; 16 datagrams and a bit for each of the others
        assert 199 * 16 <= one["datagrams"] < 199 * 20
        assert one["datagrams_per_cpu_s"] > 0 and one["events_per_s"] > 0 and not one["rejected"]
    assert found["met"] is (found["batched"]["datagrams_per_cpu_s"] >= mesh.DATAGRAMS_MIN)
