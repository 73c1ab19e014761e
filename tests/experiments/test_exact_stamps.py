"""The cost of exact stamps, on a small bus."""

from __future__ import annotations

import pytest

from unisono.experiments import exact_stamps


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_stamps, "NODES", 20)
    monkeypatch.setattr(exact_stamps, "TOPICS", 12)
    monkeypatch.setattr(exact_stamps, "QUICK_S", 200)


@pytest.mark.parametrize("case", exact_stamps.CASES)
def test_the_parts_of_a_stamp_add_up(small: None, case: str) -> None:
    printed = exact_stamps.simulate(f"printed-{case}-5", 1, True)
    assert printed["entries"] == printed["entries_uncompressed"] == printed["hops"]
    exact = exact_stamps.simulate(f"exact-{case}-5", 1, True)
    assert printed["hops"] <= exact["hops"] < exact["entries"] < exact["entries_uncompressed"]
    assert exact["bytes"] == pytest.approx(24 * exact["entries"])
    assert exact["tagged"] == 0
