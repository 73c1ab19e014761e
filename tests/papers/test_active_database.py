"""Thesis chapter 4: what the text states exactly, claim by claim."""

from __future__ import annotations

from unisono.experiments.fig_4_3 import text_example


def test_section_4_3_2_three_sequencers_cause_two_rollbacks() -> None:
    """p2 numbers three events 2, 5, 8; p3 one 3; p1 one 1: two deliveries need a rollback."""
    numbers, rolled_back_for = text_example()
    assert numbers == [2, 5, 8, 3, 1]
    assert rolled_back_for == [3, 1]
