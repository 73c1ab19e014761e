"""Deadlines mark what is late and count what is not."""

from __future__ import annotations

import pytest

from unisono.core.effects import Notify
from unisono.core.events import Event, Status
from unisono.qos.deadline import PROFILES, Deadline, Goal


def notified(layer: Deadline, took_ms: float, status: Status = Status.IN_ORDER) -> Status:
    event = Event("e", "t", b"", "p", 1, published_us=5_000_000)
    (effect,) = layer.notify(event, status, 5_000_000 + round(1000 * took_ms))
    assert isinstance(effect, Notify)
    return effect.status


def test_late_is_what_misses_the_deadline() -> None:
    layer = Deadline(lambda topic: (Goal(100, 1.0),))
    assert notified(layer, 100) is Status.IN_ORDER
    assert notified(layer, 100.1) is Status.LATE
    assert notified(layer, 500, Status.OUT_OF_ORDER) is Status.OUT_OF_ORDER
    assert notified(layer, 500, Status.GAP_SKIPPED) is Status.GAP_SKIPPED
    assert layer.topics["t"].shares == (0.25,)
    assert not layer.topics["t"].met


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_have_two_goals_and_the_longer_one_decides(profile: str) -> None:
    first, second = PROFILES[profile]
    layer = Deadline(lambda topic: (first, second))
    for _ in range(96):
        assert notified(layer, first.within_ms) is Status.IN_ORDER
    for _ in range(4):
        assert notified(layer, second.within_ms) is Status.IN_ORDER
    assert layer.topics["t"].shares == (0.96, 1.0) and layer.topics["t"].met
    assert notified(layer, second.within_ms + 1) is Status.LATE
    assert not layer.topics["t"].met


def test_without_a_deadline_nothing_is_late() -> None:
    layer = Deadline(lambda topic: ())
    assert notified(layer, 1e9) is Status.IN_ORDER
    assert layer.topics["t"].met and layer.topics["t"].shares == ()
