"""What must hold of a mesh that was left alone for a while, and stories that disturb it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from unisono.ens.scribe.ids import distance, group_id, site_id
from unisono.ens.scribe.options import Shape
from unisono.ens.scribe.site import Site
from unisono.sim.mesh import Flat, MeshWorld


def sites(world: MeshWorld, slot: int) -> dict[str, Site]:
    """By name, the sites that somebody is active in."""
    found: dict[str, Site] = {}
    for node in world.nodes.values():
        if slot in node.sites:
            site = node.sites[slot]
            found[site.site] = site
    return found


def clusters_wrong(world: MeshWorld) -> Iterator[str]:
    """All processes of a domain are in one view, and nobody else."""
    domains: dict[str, set[str]] = {}
    for address, node in world.nodes.items():
        domains.setdefault(node.cluster.domain, set()).add(address)
    for address, node in world.nodes.items():
        view = node.cluster.view
        if view is None:
            yield f"{address} is in no cluster"
        elif {member.address for member in view.members} != domains[node.cluster.domain]:
            yield f"{address} sees {[x.address for x in view.members]} in {view.site}"
        elif view.site != node.cluster.domain:
            yield f"{address} is in {view.site}"


def rings_wrong(world: MeshWorld, slot: int, keys: list[int]) -> Iterator[str]:
    """From everywhere a route leads to the nearest site, in few hops."""
    found = sites(world, slot)
    for key in keys:
        nearest = min(found, key=lambda name: (distance(site_id(name, slot), key), name))
        for start in found:
            at, hops = start, 0
            while (hop := found[at].ring.next_hop(key)) is not None:
                at, hops = hop.site, hops + 1
                if at not in found or hops > 16:
                    break
            if at != nearest:
                yield f"slot {slot}: from {start} to {key:x} ends at {at} and not at {nearest}"
            elif hops > _hops(len(found)):
                yield f"slot {slot}: {hops} hops among {len(found)} sites"


def _hops(count: int) -> int:
    """One digit a hop, and two more for the leaves."""
    return max(count - 1, 1).bit_length() // 4 + 3


def trees_wrong(world: MeshWorld, slot: int) -> Iterator[str]:
    """One tree a topic: no circles, all that want it, parents know their children."""
    found = sites(world, slot)
    topics = {topic for node in world.nodes.values() for topic in node.subscribed}
    for topic in topics:
        key = group_id(topic, slot)
        nearest = min(found, key=lambda name: (distance(site_id(name, slot), key), name))
        wanting = {
            node.cluster.view.site
            for node in world.nodes.values()
            if topic in node.subscribed and node.cluster.view is not None
        }
        for name, parent in found.items():
            tree = parent.trees.get(topic)
            for child in tree.children if tree is not None else ():
                below = found[child].trees.get(topic) if child in found else None
                if below is None or below.parent is None or below.parent.site != name:
                    yield f"{topic} {slot}: {child} is not the child of {name}"
        for start in wanting:
            at, passed = start, {start}
            while True:
                site = found.get(at)
                tree = site.trees.get(topic) if site is not None else None
                if tree is None:
                    yield f"{topic} {slot}: {at} is not in the tree, from {start}"
                    break
                if tree.parent is None:
                    if at != nearest:
                        yield f"{topic} {slot}: {at} has no parent and is not the root {nearest}"
                    break
                above = found.get(tree.parent.site)
                known = above.trees.get(topic) if above is not None else None
                if known is None or at not in known.children:
                    yield f"{topic} {slot}: {tree.parent.site} does not know its child {at}"
                    break
                at = tree.parent.site
                if at in passed:
                    yield f"{topic} {slot}: a circle through {at}"
                    break
                passed.add(at)
            tree = found[start].trees.get(topic) if start in found else None
            if tree is not None and not tree.ready:
                yield f"{topic} {slot}: {start} does not know that the root is reached"


def wrong(world: MeshWorld, shape: Shape, keys: list[int]) -> Iterator[str]:
    yield from clusters_wrong(world)
    for slot in range(shape.trees):
        yield from rings_wrong(world, slot, keys)
        yield from trees_wrong(world, slot)


class Story:
    """Processes of a few domains that come, go, crash, subscribe and publish, by a seed."""

    def __init__(self, seed: int, shape: Shape, loss: float = 0.0) -> None:
        self.rng = Random(seed)
        self.shape = shape
        self.net = Flat(seed, loss=loss)
        self.got: Counter[tuple[str, bytes]] = Counter()
        self.world = MeshWorld(self.net, shape, seed, self._arrive, coded=True)
        self.keys = [self.rng.getrandbits(64) for _ in range(8)]
        self._count = 0
        self.published = 0

    def _arrive(self, address: str, topic: str, frame: bytes, now: int) -> None:
        self.got[address, frame] += 1

    def join(self, domain: str) -> str:
        world = self.world
        address = f"n{self._count}"
        self._count += 1
        joined = [a for a, node in world.nodes.items() if node.cluster.joined]
        seeds = self.rng.sample(joined, min(2, len(joined)))
        world.start(address, domain, seeds)  # the first one, or the only one left, begins a mesh
        return address

    def cut(self, times: int) -> None:
        """Ways between processes are cut, some at a time, for some beats; then all are whole."""
        world, rng = self.world, self.rng
        names = list(world.nodes)
        pairs = [frozenset((a, b)) for i, a in enumerate(names) for b in names[:i]]
        for _ in range(times):
            if rng.random() < 0.5:
                side = frozenset(rng.sample(names, rng.randrange(1, len(names))))
                self.net.cut = {pair for pair in pairs if len(pair & side) == 1}
            else:
                self.net.cut = set(rng.sample(pairs, rng.randrange(1, len(pairs))))
            world.run(world.now + rng.randint(2, 30) * self.shape.beat_us)
        self.net.cut = set()

    def disturb(self, steps: int, domains: int) -> None:
        """One step a beat or so."""
        world, rng = self.world, self.rng
        for _ in range(steps):
            draw = rng.random()
            addresses = list(world.nodes)
            if draw < 0.35 or len(addresses) < 3:
                self.join(f"d{rng.randrange(domains)}")
            elif draw < 0.5:
                world.crash(rng.choice(addresses))
            elif draw < 0.6:
                world.leave(rng.choice(addresses))
            elif draw < 0.8:
                world.subscribe(rng.choice(addresses), f"t{rng.randrange(3)}")
            elif draw < 0.85:
                world.unsubscribe(rng.choice(addresses), f"t{rng.randrange(3)}")
            else:
                ready = [a for a in addresses if world.nodes[a].cluster.joined]
                if ready:
                    self.publish(rng.choice(ready))
            world.run(world.now + rng.randrange(self.shape.beat_us * 2))

    def publish(self, address: str, topic: str | None = None) -> bytes:
        self.published += 1
        frame = b"%d" % self.published
        self.world.publish(address, topic or f"t{self.rng.randrange(3)}", frame)
        return frame

    def _help_lost(self) -> None:
        """Who is alone, and all it ever knew of are gone, is started anew."""
        for address, node in list(self.world.nodes.items()):
            view = node.cluster.view
            alone = view is None or (
                len(view.members) == 1 and not any(s.ring.known for s in node.sites.values())
            )
            if alone and node.seeds and not any(seed in self.world.nodes for seed in node.seeds):
                self.world.crash(address)
                self.join(node.cluster.domain)

    def settle(self, rounds: int) -> int | None:
        """How many rounds until all is well; None: not within so many."""
        for number in range(rounds):
            self._help_lost()
            if next(wrong(self.world, self.shape, self.keys), None) is None:
                return number
            self.world.run(self.world.now + self.shape.beat_us)
        return None
