"""How little a test of a layer needs: make it, call it, look at the effects."""

from __future__ import annotations

from unisono.core.effects import Notify
from unisono.core.events import Event, Status
from unisono.qos.template import NoEcho


def test_own_events_do_not_come_back() -> None:
    layer = NoEcho("me")
    mine = Event("me-1", "t", b"", "me", 1, 0)
    yours = Event("you-1", "t", b"", "you", 1, 0)
    assert layer.notify(mine, Status.IN_ORDER, 0) == ()
    assert layer.notify(yours, Status.IN_ORDER, 0) == (Notify(yours, Status.IN_ORDER),)
