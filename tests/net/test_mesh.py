"""The mesh over real sockets in one process: guarantees above it, guests, keys, restarts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from support.proxy import Proxy
from support.servers import free_port

import unisono
from unisono.core.effects import Effect
from unisono.errors import BadInput, EnvironmentLacks
from unisono.net.datagrams import parse
from unisono.net.keys import make_key, read_key
from unisono.net.mesh import MeshService, Settings
from unisono.net.services import KEY_FILE, service_of
from unisono.net.udp import Endpoint

_PATIENCE_S = 30
_FIRST = "mesh://?listen=127.0.0.1:0&cluster=a&insecure=1"  # a node that begins a mesh


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "key")
    return tmp_path / "key"


def address() -> str:
    return f"127.0.0.1:{free_port()}"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - of datagrams, there is no event
            await asyncio.sleep(0.005)


def test_total_order_over_a_mesh_of_two_clusters_and_a_guest(key: Path) -> None:
    async def scene() -> None:
        one, two = address(), address()
        rome = f"mesh://?listen={one}&cluster=rome&key={key}"
        oslo = f"mesh://{one}?listen={two}&cluster=oslo&key={key}"
        async with (
            unisono.connect(rome, order="total") as a,
            unisono.connect(oslo, order="total") as b,
            unisono.connect(f"mesh://{two}?key={key}", order="total") as guest,
        ):
            await asyncio.gather(a.subscribe("x", "y"), b.subscribe("x", "y"))

            async def publish(bus: unisono.Bus, topic: str) -> None:
                for number in range(100):
                    await bus.publish(topic, b"%d" % number)

            await asyncio.gather(publish(guest, "x"), publish(a, "y"), publish(b, "x"))

            async def hear(bus: unisono.Bus) -> list[str]:
                return [(await bus.notify()).id for _ in range(300)]

            async with asyncio.timeout(_PATIENCE_S):
                heard = await asyncio.gather(hear(a), hear(b))
            assert heard[0] == heard[1]

    asyncio.run(scene())


class Member:
    """A process of the mesh that keeps what it hears."""

    def __init__(self, key: Path | None, **settings: object) -> None:
        secret = read_key(key) if key is not None else None
        made = Settings(key=secret, **{"listen": "127.0.0.1:0", **settings})  # type: ignore[arg-type]
        self.service = MeshService(made, _PATIENCE_S)
        self.heard: list[bytes] = []
        self.troubles: list[str] = []

    async def open(self) -> Member:
        await self.service.open(self._on_frame, self.troubles.append, lambda: None)
        return self

    async def _on_frame(self, topic: str, frame: bytes) -> None:
        self.heard.append(frame)


def test_a_guest_goes_on_when_the_node_it_came_by_is_gone(key: Path) -> None:
    async def scene() -> None:
        async with AsyncExitStack() as stack:
            first, second = address(), address()
            nodes = [
                await Member(key, listen=first, cluster="rome", node=True).open(),
                await Member(key, listen=second, seeds=(first,), cluster="rome", node=True).open(),
            ]
            guest = await Member(key, seeds=(first,)).open()
            for member in (*nodes[1:], guest):
                stack.push_async_callback(member.service.close)
            await guest.service.subscribe("t")
            await nodes[0].service.close()
            for number in range(20):
                await nodes[1].service.publish("t", b"%d" % number)
            await until(lambda: len(guest.heard) == 20)
            await until(lambda: guest.service.mesh.cluster.leader.address == second)

    asyncio.run(scene())


def test_flush_says_so_if_no_coordinator_may_have_it(key: Path) -> None:
    async def scene() -> None:
        first = address()
        node = await Member(key, listen=first, cluster="rome", node=True).open()
        guest = await Member(key, seeds=(first,)).open()
        service = guest.service
        await service.flush()  # of nothing
        await node.service.subscribe("t")
        await service.publish("t", b"1")
        await service.flush()
        await service.publish("t", b"2")
        node.service.endpoint.drop(service.endpoint.address)  # with what is on its way
        await until(lambda: not service._handed.ranges)
        with pytest.raises(ConnectionError, match="no coordinator"):
            await service.flush()
        await service.flush()  # it was said
        await service.publish("t", b"3")
        await service.flush()
        await until(lambda: node.heard[-1:] == [b"3"])
        for member in (guest, node):
            await member.service.close()

    asyncio.run(scene())


def test_a_beat_that_fails_is_told_and_the_next_one_comes(key: Path) -> None:
    async def scene() -> None:
        node = await Member(key, cluster="rome", node=True).open()
        mesh = node.service.mesh
        beats = 0

        def tick(now: int) -> list[Effect]:
            nonlocal beats
            beats += 1
            raise ValueError("broken")

        mesh.tick = tick  # type: ignore[method-assign]
        await until(lambda: beats >= 2)
        assert any("broken" in trouble for trouble in node.troubles)
        await node.service.close()

    asyncio.run(scene())


def test_who_has_another_key_is_not_heard(key: Path, tmp_path: Path) -> None:
    make_key(tmp_path / "other")

    async def scene() -> None:
        first = address()
        node = await Member(key, listen=first, cluster="rome", node=True).open()
        for other in (tmp_path / "other", None):
            stranger = Member(other, seeds=(first,))
            stranger.service._connect_s = 0.3
            with pytest.raises(EnvironmentLacks, match="with the same key"):
                await stranger.open()
        view = node.service.mesh.cluster.view
        assert view is not None and len(view.members) == 1
        counters = node.service.endpoint.counters
        assert counters["messages in"] == 0
        assert sum(count for name, count in counters.items() if name.startswith("rejected")) > 0
        await node.service.close()

    asyncio.run(scene())


def test_a_restarted_node_is_let_in_at_once(key: Path) -> None:
    """At the same address, before anybody has noticed that it was gone."""

    async def scene() -> None:
        first, second = address(), address()
        settings = {"listen": second, "seeds": (first,), "cluster": "rome", "node": True}
        a = await Member(key, listen=first, cluster="rome", node=True).open()
        b = await Member(key, **settings).open()
        assert b.service._ticking is not None
        b.service._ticking.cancel()
        endpoint = b.service.endpoint
        assert endpoint._socket is not None
        asyncio.get_running_loop().remove_reader(endpoint._socket)
        endpoint._socket.close()  # as a kill does: without a word
        c = await Member(key, **settings).open()
        await a.service.subscribe("t")
        await c.service.publish("t", b"again")
        await until(lambda: a.heard == [b"again"])
        view = a.service.mesh.cluster.view
        assert view is not None and len(view.members) == 2
        await c.service.close()
        await a.service.close()

    asyncio.run(scene())


def test_who_has_left_stays_out(key: Path) -> None:
    async def scene() -> None:
        first = address()
        node = await Member(key, listen=first, cluster="rome", node=True).open()
        for _ in range(3):
            guest = await Member(key, seeds=(first,)).open()
            before = node.service.mesh.cluster.view
            assert before is not None and len(before.members) == 2
            await guest.service.close()
            await until(lambda: node.service.mesh.cluster.view is not before)  # noqa: B023
            view = node.service.mesh.cluster.view
            assert view is not None and len(view.members) == 1
            assert view.number == before.number + 1, "it came and went again"
        await node.service.close()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mesh://127.0.0.1:7400", "a mesh needs a key"),
        ("mesh://?key=k", "the address of a node"),
        ("mesh://localhost?insecure=1", "'localhost' is not an address: it is HOST:PORT"),
        ("mesh://localhost:74000?insecure=1", "'localhost:74000' is not an address"),
        ("mesh://127.0.0.1.1:1?insecure=1", "is not an address"),
        ("mesh://two words:1?insecure=1", "is not an address"),
        (f"mesh://{'long' * 20}:1?insecure=1", "is not an address"),
        ("mesh://127.0.0.1:1?insecure=1&backups=2", "backups: that is for the first node"),
        ("mesh://127.0.0.1:1?insecure=1&cluster=mars", "leave out cluster"),
        ("mesh://127.0.0.1:1?insecure=1&key=k", "exclude each other"),
        ("mesh://127.0.0.1:1/x?insecure=1", "without '/x'"),
        ("mesh://127.0.0.1:1?insecure=1&colour=red", "colour"),
        ("mesh://127.0.0.1:1?key=nowhere", "there is no key at"),
        ("mesh://?listen=127.0.0.1:0&insecure=1", "which cluster"),
        (f"{_FIRST}&trees=x", "trees"),
        ("mesh://?listen=here&cluster=a&insecure=1", "is not an address"),
        (f"{_FIRST}&trees=99", "trees"),
        (f"{_FIRST}&backups=-1", "backups"),
        (f"{_FIRST}&beat_ms=nan", "beat_ms"),
        (f"{_FIRST}&beat_ms=inf", "beat_ms"),
        ("mesh://?listen=127.0.0.1:0&insecure=1&cluster=a%20b", "' '"),
    ],
)
def test_bad_addresses_are_refused(url: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_FILE, raising=False)
    with pytest.raises(BadInput, match=problem):
        service_of(url, 1.0)


@pytest.mark.parametrize(
    ("where", "problem", "said"),
    [
        ("255.255.255.255:1?", EnvironmentLacks, "no way leads to"),
        ("nobody.invalid:1?", EnvironmentLacks, "no address is known of nobody.invalid"),
        ("127.0.0.1:1?listen=[::1]:0", BadInput, "all of IPv6"),
        ("?listen=127.0.0.1:0&cluster=a&advertise=[::1]:1", BadInput, "all of IPv6"),
    ],
)
def test_where_no_way_leads_is_said(where: str, problem: type[Exception], said: str) -> None:
    async def scene() -> None:
        service = service_of(f"mesh://{where}&insecure=1".replace("?&", "?"), _PATIENCE_S)()
        with pytest.raises(problem, match=said):
            await service.open(on_frame, print, lambda: None)
        await service.close()

    async def on_frame(topic: str, frame: bytes) -> None:
        raise AssertionError("nothing is there")

    asyncio.run(scene())


def test_hosts_have_names(key: Path) -> None:
    """Of a node to join, to listen at and to be reached at; on the wire there are numbers."""

    async def scene() -> None:
        port = address().rpartition(":")[2]
        first = await Member(
            key, listen=f"localhost:{port}", advertise="localhost:0", cluster="a", node=True
        ).open()
        guest = await Member(
            key, listen=None, seeds=("nobody.invalid:1", f"localhost:{port}")
        ).open()
        assert "nobody.invalid" in guest.troubles[0]
        assert parse(first.service.address)[1] == int(port)
        assert parse(guest.service.address)[1] != 0
        await guest.service.subscribe("t")
        await first.service.publish("t", b"x")
        await until(lambda: guest.heard == [b"x"])
        await guest.service.close()
        await first.service.close()

    asyncio.run(scene())


def test_what_is_said_of_losses_is_bounded() -> None:
    async def scene() -> None:
        node = await Member(None, listen=address(), cluster="rome", node=True).open()
        for number in range(5000):
            node.service._lost(f"{number} takes no messages")
        assert len(node.service._losses) <= 1024 and not node.service.rejected
        await node.service.close()

    asyncio.run(scene())


def test_a_port_that_is_taken_is_said() -> None:
    async def scene() -> None:
        listen = address()
        node = await Member(None, listen=listen, cluster="rome", node=True).open()
        with pytest.raises(EnvironmentLacks, match="already in use"):
            async with unisono.connect(f"mesh://?listen={listen}&cluster=rome&insecure=1"):
                pass
        await node.service.close()

    asyncio.run(scene())


def test_an_address_that_nobody_can_reach_is_refused() -> None:
    async def scene() -> None:
        with pytest.raises(BadInput, match="advertise"):
            await Member(None, listen="0.0.0.0:0", cluster="rome", node=True).open()

    asyncio.run(scene())


def test_a_live_node_ignores_a_hundred_thousand_bad_datagrams(key: Path) -> None:
    """Recorded, cut, lengthened, changed and made-up ones; meanwhile it serves, and holds no more
    than before. `test_udp.py` counts each kind by its reason."""

    async def scene() -> None:
        rng = Random(7)
        proxy = Proxy(1)
        listen = address()
        public = proxy.add(listen)
        node = await Member(key, listen=listen, advertise=public, cluster="rome", node=True).open()
        home = address()
        guest = await Member(key, listen=home, advertise=proxy.add(home), seeds=(public,)).open()
        await guest.service.subscribe("t")
        recorded: list[bytes] = []
        proxy.tap = lambda origin, to, datagram: recorded.append(datagram) if to == public else None
        for number in range(200):
            await guest.service.publish("t", b"%d" % number)
        await guest.service.flush()
        await until(lambda: len(guest.heard) == 200)
        proxy.tap = None
        host, port = listen.split(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:
            attacker.connect((host, int(port)))
            before = rejections(node)
            for turn in range(1000):
                for _ in range(100):
                    attacker.send(spoiled(rng, rng.choice(recorded)))
                wanted = before + 100 * (turn + 1)
                while rejections(node) < wanted:  # noqa: ASYNC110 - of datagrams
                    await asyncio.sleep(0)
                if turn % 10 == 0:
                    await guest.service.publish("t", b"%d" % (200 + turn))
        await until(lambda: len(guest.heard) == 300)
        assert len(set(guest.heard)) == 300
        assert node.service.endpoint.peers == [guest.service.mesh.cluster.me.address]
        await guest.service.close()
        await node.service.close()
        proxy.close()

    asyncio.run(scene())


def rejections(node: Member) -> int:
    counters = node.service.endpoint.counters
    return sum(count for name, count in counters.items() if name.startswith("rejected"))


def spoiled(rng: Random, datagram: bytes) -> bytes:
    """From a stranger's address even a datagram that was left as it was is none."""
    kind = rng.randrange(5)
    if kind == 0:
        return datagram
    if kind == 1:
        return datagram[: rng.randrange(len(datagram))]
    if kind == 2:
        return datagram + bytes(rng.randrange(1, 400))
    if kind == 3:
        at = rng.randrange(len(datagram))
        return datagram[:at] + bytes((datagram[at] ^ rng.randrange(1, 256),)) + datagram[at + 1 :]
    return rng.randbytes(rng.randrange(1, 1472))


def test_an_authenticated_peer_that_talks_nonsense_changes_nothing(key: Path) -> None:
    async def scene() -> None:
        listen = address()
        node = await Member(key, listen=listen, cluster="rome", node=True).open()
        peer = Endpoint(address(), read_key(key), lambda *_: None, lambda _: None)
        await peer.open()
        rng = Random(3)
        view = node.service.mesh.cluster.view
        for _ in range(1000):
            while not peer.send(listen, b"\x01" + rng.randbytes(rng.randrange(60))):
                await peer.room(listen)
        assert await peer.flushed(listen)
        await until(lambda: sum(node.service.rejected.values()) == 1000)
        assert node.service.mesh.cluster.view is view
        await peer.close()
        await node.service.close()

    asyncio.run(scene())
