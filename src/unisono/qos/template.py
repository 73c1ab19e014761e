"""A template: the smallest useful layer. Copy this file to add a guarantee of your own.

Guarantee: a node is not notified of what it published itself (no echo).

How a layer is made:
1. State its guarantee in the header, as above, with the section of the paper if there is one.
2. Override the operations it changes; return effects; pass on what does not concern it.
3. Messages to the same layer on other nodes are `Control` structs with a tag; list them in
`controls`,
   send them with `Send(to, message)`, take them in `receive`.
4. Time comes in as `now` (microseconds); wake up with `SetTimer(key, at_us)` and `timer(key, now)`.
5. Add it to a stack (`net/connect.py`, `sim/scenario.py`) and give it a checker in `sim/check.py`.
`tests/qos/test_template.py` shows how little a test needs.
"""

from __future__ import annotations

from typing import ClassVar

from unisono.core.effects import Notify
from unisono.core.events import Event, Status
from unisono.core.layer import Effects, Layer


class NoEcho(Layer):
    """Holds back the node's own events."""

    name: ClassVar[str] = "no-echo"

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id

    def notify(self, event: Event, status: Status, now: int) -> Effects:
        if event.publisher == self._node_id:
            return ()
        return (Notify(event, status),)
