"""Looking at a mesh from outside, as a guest: its clusters, and what a crash does to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unisono.errors import BadInput
from unisono.net import fleet
from unisono.net.fleet import FleetNode
from unisono.net.keys import read_key
from unisono.net.mesh import MeshService, Settings

TOPIC = "unisono.mesh.watch"
_EVERY_S = 0.02


class Guest:
    """A guest of one cluster that counts what it hears."""

    def __init__(self, node: FleetNode, key: Path) -> None:
        settings = Settings(seeds=(node.address,), key=read_key(key))
        self.cluster = node.cluster
        self.service = MeshService(settings)
        self.heard: Counter[bytes] = Counter()
        self.pause_s = 0.0
        self._last: float | None = None

    async def open(self) -> None:
        await self.service.open(self._on_frame, lambda text: None, lambda: None)

    async def _on_frame(self, topic: str, frame: bytes) -> None:
        now = asyncio.get_running_loop().time()
        if self._last is not None:
            self.pause_s = max(self.pause_s, now - self._last)
        self._last = now
        self.heard[frame] += 1

    def roles(self, names: dict[str, str]) -> dict[str, Any]:
        """Who does what in the cluster, by the names of addresses."""
        cluster = self.service.mesh.cluster
        assert cluster.view is not None
        trees = cluster.shape.trees
        coordinators = [cluster.active(slot).address for slot in range(trees)]
        backups = [m.address for slot in range(trees) for m in cluster.backups(slot)]
        others = [
            m.address for m in cluster.view.members if m.address not in (*coordinators, *backups)
        ]
        return {
            "site": cluster.view.site,
            "coordinators": [names.get(a, a) for a in coordinators],
            "backups": [names.get(a, a) for a in backups],
            "others": [names.get(a, "guest") for a in others],
        }


def _names(nodes: Sequence[FleetNode]) -> dict[str, str]:
    return {node.address: node.name for node in nodes}


async def _guests(nodes: Sequence[FleetNode], key: Path) -> list[Guest]:
    """One in each cluster."""
    first = {node.cluster: node for node in reversed(nodes)}
    guests = [Guest(node, key) for _, node in sorted(first.items())]
    opened = await asyncio.gather(*(guest.open() for guest in guests), return_exceptions=True)
    for problem in opened:
        if isinstance(problem, BaseException):
            await _close(guests)
            raise problem
    return guests


async def _close(guests: Sequence[Guest]) -> None:
    await asyncio.gather(*(guest.service.close() for guest in guests), return_exceptions=True)


async def clusters(nodes: Sequence[FleetNode], key: Path) -> list[dict[str, Any]]:
    """All clusters and who coordinates them."""
    guests = await _guests(nodes, key)
    try:
        return [guest.roles(_names(nodes)) for guest in guests]
    finally:
        await _close(guests)


async def kill(
    folder: Path,
    nodes: Sequence[FleetNode],
    name: str,
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Kill a node while events flow through all clusters, and tell what changes."""
    victim = next((node for node in nodes if node.name == name), None)
    if victim is None:
        raise BadInput(f"no node {name!r} runs; there are: {', '.join(n.name for n in nodes)}")
    rest = [node for node in nodes if node is not victim]
    if not rest:
        raise BadInput(f"{name} is the last one; nothing would be left to look at")
    guests = await _guests(rest, folder / fleet.KEY)
    try:
        return await _watch(folder, victim, guests, _names(nodes), seconds, say)
    finally:
        await _close(guests)


async def _watch(
    folder: Path,
    victim: FleetNode,
    guests: Sequence[Guest],
    names: dict[str, str],
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    for guest in guests:
        await guest.service.subscribe(TOPIC)
    own = next((guest for guest in guests if guest.cluster == victim.cluster), None)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    changes: list[dict[str, Any]] = []
    before: dict[str, Any] | None = None
    killed = False
    published = 0
    while loop.time() - begun < 1 + seconds:
        await guests[published % len(guests)].service.publish(TOPIC, b"%d" % published)
        published += 1
        at = loop.time() - begun - 1
        if not killed and at >= 0:
            fleet.kill(folder, victim.name)
            killed = True
            say(f"{at:5.1f} s  {victim.name} of {victim.cluster} is killed")
        now = own.roles(names) if own is not None else None
        if now is not None and now != before:
            if before is not None:
                changes.append({"at_s": round(at, 2), **now})
            say(f"{at:5.1f} s  {now['site']}: trees at {', '.join(now['coordinators'])}")
            before = now
        await asyncio.sleep(_EVERY_S)
    await asyncio.sleep(0.5)
    lost = sum(published - len(guest.heard) for guest in guests)
    twice = sum(sum(guest.heard.values()) - len(guest.heard) for guest in guests)
    return {
        "killed": victim.name,
        "cluster": victim.cluster,
        "published": published,
        "subscribers": len(guests),
        "lost": lost,
        "duplicates": twice,
        "pause_ms": round(1000 * max(guest.pause_s for guest in guests), 1),
        "changes": changes,
    }
