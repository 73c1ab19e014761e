"""A peer that has the key and talks nonsense: nobody fails, nobody hangs, and all is well again."""

from __future__ import annotations

from random import Random

import pytest
from support.nonsense import nonsense
from support.overlay import Story, wrong
from support.seeds import seed_range

from unisono.ens.scribe.messages import Adopt, decode, encode
from unisono.ens.scribe.node import Mesh
from unisono.ens.scribe.options import Shape

MESSAGES = 1500
ROUNDS = 200


@pytest.mark.seeded
@pytest.mark.parametrize("seed", seed_range(3))
def test_nonsense_is_survived(seed: int) -> None:
    rng = Random(seed)
    story = Story(seed, Shape())
    world = story.world
    for number in range(9):
        story.join(f"d{number % 3}")
        world.run(world.now + 2 * story.shape.beat_us)
    addresses = list(world.nodes)
    for address in addresses:
        world.subscribe(address, "t0")
    assert story.settle(ROUNDS) is not None
    names = [world.nodes[address].name for address in addresses]
    words = [*addresses, *names, "d0", "d1", "d2", f"d0~{names[0]}", "t0", "t1", ""]
    for _ in range(MESSAGES):
        to, sender = rng.choice(addresses), rng.choice(addresses)
        message = decode(encode(nonsense(rng, words)))
        node = world.nodes[to]
        effects = node.receive(sender, message, world.now)
        assert len(effects) < 1000, message
        world._carry(to, effects)
        world.run(world.now + rng.choice((0, 0, 1000, story.shape.beat_us)))
    assert story.settle(ROUNDS) is not None, next(wrong(world, story.shape, story.keys))


def test_a_site_does_not_hang_below_itself() -> None:
    """It would stay there: nobody watches itself."""
    node = Mesh("n0", "n0", "d0", Shape(), Random(0))
    node.start(1_000_000)
    node.subscribe("t0", "ticket", node.now)
    tree = node.sites[0].trees["t0"]
    assert tree.root
    tree.root = False  # as while it looks for a parent
    me = node.cluster.contact(0)
    node.receive("n1", Adopt(0, "t0", me, ("d1",), True, ()), node.now)
    assert tree.parent is None
