"""Thesis chapter 4: what the text states exactly, claim by claim."""

from __future__ import annotations

from random import Random

from unisono.core.effects import Notify, Send
from unisono.core.events import Event, Status
from unisono.qos.sequencer import ALL
from unisono.qos.uec import Request, Rumour, UnconsciousConsistency


def test_section_4_3_2_three_sequencers_cause_two_rollbacks() -> None:
    """p2 numbers three events 2, 5, 8; p3 one 3; p1 one 1: two deliveries need a rollback."""
    nodes = ("p1", "p2", "p3", "replica")
    layers = {
        node: UnconsciousConsistency(node, nodes, nodes[:3], Random(0), fanout=3) for node in nodes
    }
    layers["replica"].subscribe(["t"], None, 0)
    statuses: dict[int, Status] = {}
    for index, sequencer in enumerate(("p2", "p2", "p2", "p3", "p1")):
        event = Event(f"e{index}", "t", b"", "client", index, 0)
        sent = list(layers[sequencer].receive(Request(event), "client", 0))
        rumour = next(e.message for e in sent if isinstance(e, Send) and e.to == "replica")
        assert isinstance(rumour, Rumour) and rumour.event.stamp is not None
        for effect in layers["replica"].receive(rumour, sequencer, 0):
            if isinstance(effect, Notify):
                statuses[rumour.event.stamp[ALL]] = effect.status
    assert list(statuses) == [2, 5, 8, 3, 1]
    rollbacks = [number for number, status in statuses.items() if status is Status.OUT_OF_ORDER]
    assert rollbacks == [3, 1]
