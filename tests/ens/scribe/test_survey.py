"""Which parents a cluster takes: with regard to all trees, and again once the ways are known."""

from __future__ import annotations

from unisono.ens.scribe.messages import Contact, Offered, Offers, Take
from unisono.ens.scribe.options import SECOND, Shape
from unisono.ens.scribe.survey import Decisions
from unisono.sim.mesh import Flat, MeshWorld


def offered(slot: int, site: str, *way: str) -> Offered:
    return Offered(slot, "t", Contact(site, slot, 1, (site,)), way, 0)


def taken(found: list[Take]) -> dict[int, str]:
    return {take.slot: take.parent.site for take in found}


def test_a_tree_that_asks_alone_regards_the_parents_of_the_others() -> None:
    decisions = Decisions()
    decisions.hear(Offers(0, "t", (offered(0, "A", "r1"),)), 0)
    assert list(decisions.decide(2, 1, 10)) == []  # the other tree may still come
    decisions.hear(Offers(1, "t", (offered(1, "A", "r1"), offered(1, "B", "r2"))), 5)
    assert taken(list(decisions.decide(2, 6, 10))) == {0: "A", 1: "B"}
    again = (offered(0, "B", "r2"), offered(0, "C", "r3"), offered(0, "D", "r2", "r3"))
    decisions.hear(Offers(0, "t", again), 100)
    assert list(decisions.decide(2, 105, 10)) == []
    assert taken(list(decisions.decide(2, 110, 10))) == {0: "C"}


class Measured(Flat):
    """A network whose ways are not known until they were measured."""

    def __init__(self) -> None:
        super().__init__(1)
        self.known = False

    def way(self, source: str, target: str) -> frozenset[str] | None:
        if not self.known:
            return None
        shared = "r1" if "a" in (source[0], target[0]) else "r2"
        return frozenset((shared,))


def test_parents_are_chosen_again_once_the_ways_are_known() -> None:
    """Four clusters: both trees of one could hang below the same, over the same router."""
    net = Measured()
    world = MeshWorld(net, Shape(), 1, lambda *arrived: None)
    for domain in "abcd":
        for number in range(2):
            world.start(
                f"{domain}{number}", domain, () if domain + str(number) == "a0" else ("a0",)
            )
            world.run(world.now + SECOND // 4)
    world.run(world.now + 10 * SECOND)
    tickets = [world.subscribe(f"{domain}1", "t") for domain in "abcd"]
    assert world.run_until(lambda: world.done.issuperset(tickets), 60 * SECOND)
    world.run(world.now + 4 * SECOND)
    asked = world.sent["Probe"]
    net.known = True
    world.run(world.now + 16 * SECOND)
    assert world.sent["Probe"] > asked
    settled = world.sent["Probe"]
    world.run(world.now + 120 * SECOND)
    assert world.sent["Probe"] == settled  # all is known, and nothing has changed since
