"""The simulated part of `unisono bench mesh`: the same work by all means, and targets that can be
missed."""

from __future__ import annotations

import pytest

from unisono.bench import mesh_sim
from unisono.sim.columnar import mesh

FOUND = {
    "ring": 1.0,
    "tree": 0.5,
    "forest": 3.0,
    "tables": 0.5,
    "tables_numpy": 4.0,
    "multicast": 0.002,
    "two_trees": 0.003,
    "multicast_numpy": 0.004,
    "multicast_rustworkx": 0.02,
}


def test_figures_are_medians_and_ratios() -> None:
    others = [{**FOUND, "ring": 9.0}, {**FOUND, "multicast": 0.001}]
    found = mesh_sim.summarise([FOUND, *others], 10_000, 1_000)
    assert (found["build_s"], found["multicast_ms"]) == (1.5, 2.0)
    assert found["ratios"] == {
        "tables_numpy": 8.0,
        "multicast_numpy": 2.0,
        "multicast_rustworkx": 10.0,
    }
    assert found["met"]


@pytest.mark.parametrize("slow", [{"tree": 1.0}, {"multicast": 0.0051}])
def test_each_target_can_be_missed(slow: dict[str, float]) -> None:
    assert not mesh_sim.summarise([{**FOUND, **slow}], 10_000, 1_000)["met"]


def test_all_is_measured_on_the_same_work() -> None:
    remarks: list[str] = []
    found = mesh_sim.run(1, remarks.append, sites=400, topics=3)
    assert remarks and found["sites"] == 400


def test_other_results_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def far(sites: int, seed: int) -> mesh.Plane:
        return plane(sites, seed + 1)

    plane = mesh.plane
    rows = mesh_sim._rows
    monkeypatch.setattr(
        mesh_sim, "_rows", lambda ring, here, at: rows(ring, far(ring.ids.size, 0), at)
    )
    with pytest.raises(AssertionError, match="tables differ"):
        mesh_sim.run(1, print, sites=100, topics=1)
