"""The mesh as an event service: a process of it over one UDP socket.

`mesh://127.0.0.1:7400` joins as a guest, in the cluster of the process at that address; with
`listen` and `cluster` it is a node of its own that others can join. Frames come over several trees
and arrive once; what a reader does not take in time waits here, up to a bound.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from random import Random

import msgspec

from unisono.core.effects import Arrive, Done, Effect
from unisono.core.limits import RESERVED, MeshLimits
from unisono.core.wire import Rejected
from unisono.ens.base import OnFrame
from unisono.ens.scribe.messages import BULK as BULKY
from unisono.ens.scribe.messages import Message, View, born, decode, encode
from unisono.ens.scribe.node import Mesh, Tell
from unisono.ens.scribe.options import Shape
from unisono.errors import BadInput, BusClosed, EnvironmentLacks
from unisono.net import names
from unisono.net.clock import Clock
from unisono.net.datagrams import parse, text
from unisono.net.handed import Handed
from unisono.net.keys import Key
from unisono.net.udp import BULK, URGENT, Endpoint
from unisono.net.ways import Ways

log = logging.getLogger("unisono")
_WAITING_FRAMES = 1 << 16  # events that the reader has not taken: further ones are lost, and said
_WAITING_BYTES = 1 << 28
_PAUSE_S = 0.1  # a source rests at most so long while what it sent cannot be passed on
_LOSSES = 1024  # kinds of them that are counted: then all are counted anew
_ENVELOPE_BYTES = 1024  # of a message around its frame


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process of a mesh is, and whom it knows. Addresses may have host names."""

    listen: str | None = None  # none: any port, where the first seed can answer
    advertise: str | None = None  # the address by which others reach it, if it is another
    seeds: tuple[str, ...] = ()
    cluster: str = ""  # none: that of the seed
    node: bool = False  # it stays, and may coordinate; else it is a guest
    key: Key | None = None  # none: nothing is protected
    shape: Shape = Shape()


class _Lane:
    """Frames for the reader, one by one."""

    def __init__(self, on_frame: OnFrame) -> None:
        self._on_frame = on_frame
        self._frames: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def put(self, topic: str, frame: bytes) -> bool:
        if len(self._frames) >= _WAITING_FRAMES or self._bytes >= _WAITING_BYTES:
            return False
        self._frames.append((topic, frame))
        self._bytes += len(frame)
        self._filled.set()
        return True

    async def _run(self) -> None:
        while True:
            while self._frames:
                topic, frame = self._frames.popleft()
                self._bytes -= len(frame)
                await self._on_frame(topic, frame)
            self._filled.clear()
            await self._filled.wait()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class MeshService:
    """One process of a mesh."""

    replicas = 3
    native_order = False  # each topic has a tree of its own
    discovery_s = 1.0
    generation = 0

    def __init__(
        self, settings: Settings, connect_s: float = 5.0, limits: MeshLimits | None = None
    ) -> None:
        self._settings = settings
        self._connect_s = connect_s
        self._limits = limits or MeshLimits()
        self.max_frame_bytes: int | None = self._limits.message_bytes - _ENVELOPE_BYTES
        self.rejected: Counter[str] = Counter()  # messages that were not understood, by reason
        self._losses: Counter[str] = Counter()  # by what was said of them
        self._tickets: dict[str, asyncio.Future[None]] = {}
        self._ways = Ways()
        self._crowded: dict[str, None] = {}  # peers that take no more for now
        self._handed = Handed()
        self._refused: set[str] = set()  # addresses that could not be sent something just now
        self._resting: dict[str, asyncio.Task[None]] = {}
        self._now = Clock()
        self._last: tuple[Message, bytes] | None = None
        self._cut_off = False
        self._closed = False
        self._joined = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None
        self._count = 0

    async def open(
        self,
        on_frame: OnFrame,
        on_trouble: Callable[[str], None],
        on_reconnect: Callable[[], None],
    ) -> None:
        settings = self._settings
        self._on_trouble, self._on_reconnect = on_trouble, on_reconnect
        listen, advertise, seeds = await self._places()
        self.endpoint = Endpoint(
            listen,
            settings.key,
            self._on_message,
            self._handed.gone,
            self._limits,
        )
        await self.endpoint.open()
        host, port = parse(advertise or self.endpoint.address)
        address = text((host, port or parse(self.endpoint.address)[1]))
        if host in ("0.0.0.0", "::"):
            await self.endpoint.close()
            raise BadInput(
                f"others cannot reach {address}: say where they can, with --advertise HOST:PORT or "
                "?advertise=HOST:PORT"
            )
        self._messages, self._events = _Lane(on_frame), _Lane(on_frame)
        self.mesh = Mesh(
            secrets.token_hex(6),
            address,
            settings.cluster,
            settings.shape,
            Random(secrets.token_bytes(16)),
            seeds,
            settings.node,
            self._ways.to,
        )
        self._carry(self.mesh.start(self._now()))
        self._ticking = asyncio.create_task(self._tick())
        try:
            async with asyncio.timeout(self._connect_s):
                await self._joined.wait()
        except TimeoutError:
            await self.close()
            counts = {
                k: n for k, n in self.endpoint.counters.items() if n and k[:3] in ("rej", "soc")
            }
            heard = f"; {counts}" if counts else ""
            back = f", and does it reach {advertise}" if advertise else ""
            raise EnvironmentLacks(
                f"no mesh answers at {', '.join(seeds)} within {self._connect_s:g} s"
                f"{heard}: is a node running there, with the same key{back}?"
            ) from None

    async def _places(self) -> tuple[str, str | None, list[str]]:
        """Where to listen, where others reach it, and the seeds: as numbers, of one family."""
        asked = self._settings
        own = [given for given in (asked.listen, asked.advertise) if given is not None]
        found, problems = await names.look_up((*asked.seeds, *own), self._connect_s)
        seeds = [at for seed in asked.seeds for at in found.get(seed, ())]
        missing = [problem for given, problem in problems.items() if given in own or not seeds]
        if missing:
            raise EnvironmentLacks(missing[0])
        for problem in problems.values():  # others are enough
            self._on_trouble(problem)
        if asked.listen is None:
            listen = local_address(seeds)
        else:
            here = found[asked.listen]
            listen = next((at for at in here if names.of_family(seeds, at)), here[0])
        near = names.of_family(seeds, listen)
        known = found[asked.advertise] if asked.advertise is not None else []
        advertise = next(iter(names.of_family(known, listen)), None)
        if (seeds and not near) or (known and advertise is None):
            raise BadInput(f"{listen} and the others must all be of IPv4, or all of IPv6")
        return listen, advertise, near

    @property
    def address(self) -> str:
        return self.mesh.address

    @property
    def clusters(self) -> dict[str, tuple[str, ...]]:
        return self.mesh.clusters

    async def _tick(self) -> None:
        while True:
            began = time.monotonic()
            self._guarded("a beat of the mesh", self._beat)
            beat_s = self.mesh.shape.beat_us / 1e6
            if not self.mesh.cluster.joined:
                beat_s = min(beat_s, 0.1)
            await asyncio.sleep(max(0.0, began + beat_s - time.monotonic()))

    def _guarded(self, what: str, do: Callable[[], None]) -> None:
        """A fault must neither be hidden nor end the beats, nor lose the messages after it."""
        try:
            do()
        except Exception as error:
            log.exception("%s failed", what)
            self._lost(f"{what} failed: {error!r}")

    def _beat(self) -> None:
        view = self.mesh.cluster.view
        self._carry(self.mesh.tick(self._now()))
        self._ways.look_at(self.mesh.neighbours)
        self._look_at(view)

    def _look_at(self, before: View | None) -> None:
        """Say when the rest of the cluster is lost, or found again."""
        view = self.mesh.cluster.view
        cut_off = view is not None and self.mesh.cluster.cut_off(self._now())
        if cut_off and not self._cut_off:
            self._on_trouble("no coordinator of the cluster is heard; looking for others")
        self._cut_off = cut_off
        if before is None or view is None:
            return
        if (view.site, born(view.number)) == (before.site, born(before.number)):
            return
        self.generation += 1
        if "~" in view.site and "~" not in before.site:
            self._on_trouble("the coordinators of the cluster are out of reach; going on alone")
        else:
            self._on_trouble("back in the cluster; events sent meanwhile may be lost")
            self._on_reconnect()

    # In and out.

    def _on_message(self, sender: str, data: bytes) -> None:
        try:
            message = decode(data)
        except Rejected as problem:
            self.rejected[problem.reason] += 1
            return
        self._crowded.clear()
        kind = type(message).__name__
        self._guarded(
            f"a message of the mesh ({kind})",
            lambda: self._carry(self.mesh.receive(sender, message, self._now())),
        )
        if self._crowded and isinstance(message, BULKY) and sender not in self._resting:
            self._resting[sender] = asyncio.create_task(self._rest(sender, [*self._crowded]))

    async def _rest(self, sender: str, crowded: Iterable[str]) -> None:
        """Take no more events from there until those for whom they are can take them."""
        self.endpoint.pause(sender)
        try:
            async with asyncio.timeout(_PAUSE_S):
                for peer in crowded:
                    await self.endpoint.room(peer)
        except TimeoutError:
            pass  # two that wait for each other must not wait forever
        finally:
            del self._resting[sender]
            self.endpoint.resume(sender)

    def _carry(self, effects: Iterable[Effect]) -> None:
        self._refused.clear()
        for effect in effects:
            if isinstance(effect, Tell):
                self._send(effect.to, effect.message)
            elif isinstance(effect, Arrive):
                lane = self._messages if effect.topic.startswith(RESERVED) else self._events
                if not lane.put(effect.topic, effect.frame):
                    self._lost(f"{effect.topic} is not read fast enough; events are lost")
            else:
                assert isinstance(effect, Done), effect
                waiting = self._tickets.pop(effect.ticket, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)
        if not self._joined.is_set() and self.mesh.settled:
            self._joined.set()

    def _send(self, to: str, message: Message) -> None:
        if self._last is None or self._last[0] is not message:  # often the same to many
            self._last = (message, encode(message))
        lane = BULK if isinstance(message, BULKY) else URGENT
        try:
            sent = self.endpoint.send(to, self._last[1], lane)
        except BadInput as problem:
            self._refused.add(to)
            self._lost(str(problem))
            return
        if not sent:
            self._refused.add(to)
            self._lost(f"{to} takes no messages; one was dropped, and is asked for again")
        elif lane == BULK and not self.endpoint.has_room(to):
            self._crowded[to] = None

    def _lost(self, text: str) -> None:
        """Say it, not every time."""
        if len(self._losses) >= _LOSSES:
            self._losses.clear()  # they name peers and topics, of which ever new ones come
        self._losses[text] += 1
        if self._losses[text] & (self._losses[text] - 1) == 0:
            self._on_trouble(f"{text} ({self._losses[text]} so far)")

    # The four operations.

    async def publish(self, topic: str, frame: bytes) -> None:
        if self._closed:
            raise BusClosed("the mesh is closed")
        self._crowded.clear()
        sent_to = {member.address for member in self.mesh.cluster.actives}
        self._carry(self.mesh.publish(topic, frame, self._now()))
        self._handed.publish(sent_to - self._refused)
        for peer in [*self._crowded]:
            await self.endpoint.room(peer)

    async def flush(self) -> None:
        """Until coordinators have all that was published since the last time."""
        upto = self._handed.published
        taken = upto == self._handed.confirmed or await self._taken(upto)
        self._handed.confirm(upto)  # if it was not, that is said once
        if not taken:
            await asyncio.sleep(_PAUSE_S)  # whoever tries again at once would stop all else
            raise ConnectionError("no coordinator of the cluster has all that was published")

    async def _taken(self, upto: int) -> bool:
        handed = self._handed
        asked = dict(handed.ranges)
        have = {to: r for to, r in asked.items() if to == self.mesh.address}
        if handed.covered(have, upto):
            await asyncio.sleep(0)
            return True

        async def flushed(to: str) -> str | None:
            return to if await self.endpoint.flushed(to) and handed.has(to, asked[to]) else None

        waiting = [asyncio.ensure_future(flushed(to)) for to in asked if to not in have]
        try:
            for done in asyncio.as_completed(waiting):
                to = await done
                if to is not None:
                    have[to] = asked[to]
                    if handed.covered(have, upto):
                        return True
            return False
        finally:
            for each in waiting:
                each.cancel()

    async def subscribe(self, topic: str) -> None:
        if self._closed:
            raise BusClosed("the mesh is closed")
        self._count += 1
        ticket = f"subscribe-{self._count}"
        done = self._tickets[ticket] = asyncio.get_running_loop().create_future()
        self._carry(self.mesh.subscribe(topic, ticket, self._now()))
        await done

    async def unsubscribe(self, topic: str) -> None:
        if self._closed:
            raise BusClosed("the mesh is closed")
        self._carry(self.mesh.unsubscribe(topic, self._now()))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._ticking is None:
            return  # it was never open
        self._ticking.cancel()
        await asyncio.gather(self._ticking, *self._resting.values(), return_exceptions=True)
        await self._ways.close()
        self._carry(self.mesh.leave(self._now()))
        leaving = [self.endpoint.flushed(m.address) for m in self.mesh.cluster.actives]
        try:
            async with asyncio.timeout(_PAUSE_S):
                await asyncio.gather(*leaving)
        except TimeoutError:
            pass
        await self.endpoint.close()
        for waiting in self._tickets.values():
            if not waiting.done():
                waiting.set_exception(BusClosed("the mesh is closed"))
        await self._messages.stop()
        await self._events.stop()


def local_address(towards: Iterable[str]) -> str:
    """An address of this machine from which the first of the others is reached that can be, with
    any port."""
    problem = ""
    for address in towards:
        host, port = parse(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((host, port))  # sends nothing
                return text((probe.getsockname()[0], 0))
        except OSError as error:
            problem = problem or f"no way leads to {address}: {error.strerror}"
    raise EnvironmentLacks(problem)
