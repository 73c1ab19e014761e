"""Endpoints on real sockets: through a lossy proxy, restarted, paused, attacked."""

from __future__ import annotations

import asyncio
import socket
from random import Random
from typing import Any

import pytest
from support.endpoints import KEY, Node, run, turn
from support.proxy import Proxy
from support.seeds import seed_range

from unisono.core.limits import MeshLimits
from unisono.errors import BadInput, BusClosed, EnvironmentLacks
from unisono.net.datagrams import parse, text
from unisono.net.keys import Key
from unisono.net.udp import BULK, URGENT


def test_addresses() -> None:
    for address in ("127.0.0.1:7400", "[::1]:7400", "[2001:db8::1]:0", "0.0.0.0:65535"):
        assert text(parse(address)) == address
    assert text(parse("[0:0::1]:1")) == "[::1]:1"
    for bad in ("", "7400", "127.0.0.1", "localhost:1", "::1:7400", "1.2.3.4:x", "1.2.3.4:65536"):
        with pytest.raises(BadInput, match="is not an address like"):
            parse(bad)
    for bad in ("127.0.0.1\0:1", "1.2.3.4:" + "0" * 5000):  # from a peer
        with pytest.raises(BadInput, match="is not an address like"):
            parse(bad)


@pytest.mark.parametrize("key", [KEY, None], ids=["sealed", "insecure"])
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "single"])
@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
def test_messages_of_all_sizes_arrive(key: Key | None, batched: bool, fast: bool) -> None:
    async def scene() -> None:
        async with Node(key, batched=batched) as one, Node(key, batched=batched) as two:
            to = two.endpoint.address
            sizes = [0, 1, 5, 1425, 1430, 1434, 2900, 23_000, 1 << 20, 2 << 20]
            wanted = [Random(size).randbytes(size) for size in sizes for _ in range(3)]
            await one.send_all(to, wanted)
            assert await one.endpoint.flushed(to)
            assert two.contents == wanted
            assert two.messages[0][0] == one.endpoint.address
            assert one.endpoint.peers == [to]
            # and back, by the same session
            assert two.endpoint.send(one.endpoint.address, b"back", URGENT)
            await one.until(lambda: one.contents == [b"back"])
            with pytest.raises(BadInput, match="over the limit"):
                one.endpoint.send(to, bytes((2 << 20) + 1))

    run(scene, fast)


def test_ipv6() -> None:
    async def scene() -> None:
        try:
            async with Node(listen="[::1]:0") as one, Node(listen="[::1]:0") as two:
                wanted = [bytes(23_000)] * 50
                await one.send_all(two.endpoint.address, wanted)
                assert await one.endpoint.flushed(two.endpoint.address)
                assert two.contents == wanted
                with pytest.raises(BadInput, match="not of the same kind"):
                    one.endpoint.send("127.0.0.1:1", b"")
        except EnvironmentLacks:
            pytest.skip("no IPv6 here")

    run(scene)


def test_a_hundred_thousand_messages_through_a_lossy_network() -> None:
    """Both begin at once; two lanes each way."""

    async def scene() -> None:
        proxy = Proxy(11, loss=0.05, double=0.02, delay_ms=(0.0, 3.0))
        async with Node() as one, Node() as two:
            public = {node: proxy.add(node.endpoint.address) for node in (one, two)}
            sending = []
            for node, other in ((one, two), (two, one)):
                for lane in (URGENT, BULK):
                    wanted = [
                        bytes((lane,)) + n.to_bytes(4, "big") + bytes(n % 50) for n in range(25_000)
                    ]
                    sending.append(node.send_all(public[other], wanted, lane))
            await asyncio.gather(*sending)
            for node, other in ((one, two), (two, one)):
                assert await node.endpoint.flushed(public[other])
                for lane in (URGENT, BULK):
                    got = [int.from_bytes(m[1:5], "big") for m in other.contents if m[0] == lane]
                    assert got == list(range(25_000))
                assert not node.gone and node.endpoint.counters["resent"] > 0
                assert {address for address, _ in node.messages} == {public[other]}
        assert proxy.lost > 0
        proxy.close()

    run(scene)


def test_large_events_through_a_lossy_network() -> None:
    async def scene() -> None:
        proxy = Proxy(12, loss=0.05, double=0.02, delay_ms=(1.0, 3.0))
        async with Node() as one, Node() as two:
            proxy.add(one.endpoint.address)
            to = proxy.add(two.endpoint.address)
            wanted = [n.to_bytes(2, "big") + bytes(23_000) for n in range(300)]
            await one.send_all(to, wanted)
            assert await one.endpoint.flushed(to)
            assert two.contents == wanted
        proxy.close()

    run(scene)


@pytest.mark.seeded
def test_many_pairs_begin_at_once_and_lose_nothing() -> None:
    """Whatever is lost, doubled and late of their handshakes, and of the rest."""

    async def one_pair(seed: int) -> None:
        proxy = Proxy(seed, loss=0.15, double=0.1, delay_ms=(0.0, (0.5, 5.0, 40.0)[seed % 3]))
        async with Node() as one, Node() as two:
            public = {node: proxy.add(node.endpoint.address) for node in (one, two)}
            wanted = [n.to_bytes(2, "big") + bytes(n % 40 * 20) for n in range(200)]
            pairs = ((one, two), (two, one))
            await asyncio.gather(*(a.send_all(public[b], wanted) for a, b in pairs))
            for a, b in pairs:
                assert await a.endpoint.flushed(public[b])
            for node in (one, two):
                assert node.contents == wanted and not node.gone
        proxy.close()

    async def scene() -> None:
        await asyncio.gather(*(one_pair(seed) for seed in seed_range(24)))

    run(scene)


def test_a_restarted_peer_is_told_and_goes_on() -> None:
    async def scene() -> None:
        async with Node() as one:
            async with Node() as two:
                address = two.endpoint.address
                await one.send_all(address, [b"first"])
                assert await one.endpoint.flushed(address)
                # as if killed: no goodbye
                two.endpoint._sessions.drop = lambda address: None  # type: ignore[method-assign]
            assert not one.gone
            async with Node(listen=address) as again:
                await again.send_all(one.endpoint.address, [b"hello again"])
                await one.until(lambda: one.contents == [b"hello again"])
                assert one.gone == [address]
                await one.send_all(address, [b"second"])
                await again.until(lambda: again.contents == [b"second"])
            await one.until(lambda: len(one.gone) == 2)  # this time it said goodbye

    run(scene)


def test_a_peer_that_is_cut_off_is_given_up_and_found_again() -> None:
    async def scene() -> None:
        limits = MeshLimits(give_up_us=300_000)
        proxy = Proxy(1)
        async with Node(limits=limits) as one, Node(limits=limits) as two:
            mine, to = proxy.add(one.endpoint.address), proxy.add(two.endpoint.address)
            await one.send_all(to, [b"1"])
            assert await one.endpoint.flushed(to)
            proxy.cut(mine, to)
            await one.send_all(to, [b"2", b"3"])
            assert await one.endpoint.flushed(to) is False
            assert one.gone == [to] and one.endpoint.counters["dropped"] == 2
            assert one.endpoint.peers == []
            await one.send_all(to, [b"4"])
            assert await one.endpoint.flushed(to) is False  # nobody answers
            assert one.gone == [to, to]
            proxy.heal()
            await one.send_all(to, [b"5"])
            assert await one.endpoint.flushed(to)
            assert two.contents == [b"1", b"5"] and two.gone == [mine]
        proxy.close()

    run(scene)


@pytest.mark.seeded
def test_whatever_happens_nothing_comes_twice_or_out_of_order() -> None:
    """Peers drop and pause each other and are cut off, at random, while both send numbers."""

    async def one_pair(seed: int) -> None:
        rng = Random(seed)
        limits = MeshLimits(give_up_us=150_000, queue_bytes=1 << 17, window_bytes=1 << 16)
        proxy = Proxy(seed, loss=0.1, double=0.1, delay_ms=(0.0, 4.0))
        async with Node(limits=limits) as one, Node(limits=limits) as two:
            public = {node: proxy.add(node.endpoint.address) for node in (one, two)}
            for number in range(400):
                for node, other in ((one, two), (two, one)):
                    message = number.to_bytes(2, "big") + bytes(rng.randrange(6000))
                    node.endpoint.send(public[other], message)
                node, other = rng.sample((one, two), 2)
                drawn = rng.randrange(100)
                if drawn < 3:
                    node.endpoint.drop(public[other])
                elif drawn < 10:
                    node.endpoint.pause(public[other])
                elif drawn < 20:
                    node.endpoint.resume(public[other])
                elif drawn < 23:
                    proxy.cut(*public.values())
                elif drawn < 30:
                    proxy.heal()
                for _ in range(drawn):
                    await asyncio.sleep(0)
            proxy.heal()
            proxy.loss = 0.0
            for node, other in ((one, two), (two, one)):
                other.endpoint.resume(public[node])
                last = b"\xff\xff"
                while not other.contents or other.contents[-1] != last:
                    while not node.endpoint.send(public[other], last):
                        await node.endpoint.room(public[other])
                    await node.endpoint.flushed(public[other])
                numbers = [int.from_bytes(m[:2], "big") for m in other.contents if m[:2] != last]
                assert numbers == sorted(set(numbers)) and numbers
        proxy.close()

    async def scene() -> None:
        await asyncio.gather(*(one_pair(seed) for seed in seed_range(12)))

    run(scene)


def test_a_node_with_another_key_is_not_heard() -> None:
    async def scene() -> None:
        limits = MeshLimits(give_up_us=200_000)
        async with Node() as one, Node(Key(bytes(32)), limits) as two, Node(None, limits) as three:
            for stranger in (two, three):
                stranger.endpoint.send(one.endpoint.address, b"let me in")
                assert await stranger.endpoint.flushed(one.endpoint.address) is False
                assert stranger.endpoint.counters["datagrams in"] == 0
            assert not one.messages and not one.endpoint._peers
            assert one.endpoint.counters["rejected: wrong key"] >= 2

    run(scene)


def test_a_slow_reader_stops_the_sender() -> None:
    async def scene() -> None:
        limits = MeshLimits(queue_bytes=1 << 20, window_bytes=1 << 18, message_bytes=1 << 16)
        async with Node(limits=limits) as one, Node(limits=limits) as two:
            to = two.endpoint.address
            await one.send_all(to, [b"first"])
            await two.until(lambda: len(two.messages) == 1)
            two.endpoint.pause(one.endpoint.address)
            wanted = [bytes(23_000)] * 200
            sending = asyncio.create_task(one.send_all(to, wanted))
            held = two.endpoint._peers[parse(one.endpoint.address)].link._in[BULK]
            await turn(lambda: held.held_bytes > 1 << 17 and not one.endpoint.send(to, b""))
            assert one.endpoint.send(to, b"urgent", URGENT) is False  # the queue is shared
            assert two.contents == [b"first"] and held.held_bytes <= 1 << 18
            assert not sending.done()
            two.endpoint.resume(one.endpoint.address)
            await sending
            assert await one.endpoint.flushed(to)
            assert [m for m in two.contents if m] == [b"first", *wanted]

    run(scene)


def test_answers_from_within_a_callback() -> None:
    async def scene() -> None:
        async with Node() as one, Node() as two:
            for node in (one, two):

                def answer(address: str, message: bytes, node: Node = node) -> None:
                    Node.take(node, address, message)
                    if len(message) < 200:
                        assert node.endpoint.send(address, message + b"x", URGENT)

                node.endpoint._on_message = answer
            one.endpoint.send(two.endpoint.address, b"x")
            await one.until(lambda: len(one.messages) == 100)
            await two.until(lambda: len(two.messages) == 100)

    run(scene)


def test_dropping_closing_and_being_closed() -> None:
    async def scene() -> None:
        async with Node() as one:
            async with Node() as two:
                to = two.endpoint.address
                one.endpoint.send(to, b"x")
                assert await one.endpoint.flushed(to)
                one.endpoint.drop(to)
                await two.until(lambda: two.gone == [one.endpoint.address])
                assert not one.gone and not one.endpoint.peers
                assert not await one.endpoint.flushed(to)  # who knows
                one.endpoint.send(to, b"y")
                await two.until(lambda: len(two.messages) == 2)

                def leave(address: str, message: bytes) -> None:
                    one.endpoint.drop(address)

                one.endpoint._on_message = leave
                await two.send_all(one.endpoint.address, [b"1", b"2", b"3"])
                await two.until(lambda: len(two.gone) == 2)
            with pytest.raises(BusClosed):
                two.endpoint.send("127.0.0.1:1", b"")
            await two.endpoint.close()  # twice does no harm
            taken = Node(listen=one.endpoint.address)
            with pytest.raises(EnvironmentLacks, match="cannot listen on"):
                await taken.endpoint.open()

    run(scene)


class Flaky:
    """A socket that is often full, or fails."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self._rng = Random(5)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _fail(self) -> None:
        drawn = self._rng.random()
        if drawn < 0.3:
            raise BlockingIOError
        if drawn < 0.35:
            raise OSError(101, "network is unreachable")

    def sendmsg(self, *what: Any) -> int:
        self._fail()
        return self._real.sendmsg(*what)

    def sendto(self, *what: Any) -> int:
        self._fail()
        return self._real.sendto(*what)


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "single"])
def test_a_socket_that_is_full_or_fails_loses_nothing(batched: bool) -> None:
    async def scene() -> None:
        async with Node(batched=batched) as one, Node() as two:
            made = one.endpoint._socket
            assert made is not None
            made._socket = Flaky(made._socket)  # type: ignore[assignment]
            wanted = [bytes(23_000)] * 300
            await one.send_all(two.endpoint.address, wanted)
            assert await one.endpoint.flushed(two.endpoint.address)
            assert two.contents == wanted
            assert one.endpoint.counters["socket errors"] > 0

    run(scene)


async def held_back(one: Node, two: Node) -> str:
    """One has sent something that two has acknowledged and, as it rests, not taken."""
    to = two.endpoint.address
    await one.send_all(to, [b"first"])
    assert await one.endpoint.flushed(to)
    two.endpoint.pause(one.endpoint.address)
    await one.send_all(to, [b"second"])
    assert await one.endpoint.flushed(to)
    assert two.contents == [b"first"]
    return to


def test_what_was_acknowledged_is_handed_over_though_the_session_ends() -> None:
    async def scene() -> None:
        async with Node() as one, Node() as two:
            to = await held_back(one, two)
            one.endpoint.drop(to)  # it says goodbye
            await two.until(lambda: bool(two.gone))
            assert two.contents == [b"first", b"second"]

    run(scene)


def test_what_was_acknowledged_is_handed_over_though_the_peer_is_silent() -> None:
    async def scene() -> None:
        limits = MeshLimits(give_up_us=200_000)
        async with Node(limits=limits) as two:
            async with Node(limits=limits) as one:
                await held_back(one, two)
                one.endpoint._transmit = lambda *_: None  # type: ignore[method-assign]
            await two.send_all(one.endpoint.address, [b"are you there?"])
            await two.until(lambda: bool(two.gone))
            assert two.contents == [b"first", b"second"]

    run(scene)


def test_a_peer_may_be_dropped_while_it_goes() -> None:
    """By whoever takes what it had sent before."""

    async def scene() -> None:
        failures: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, failure: failures.append(failure))
        async with Node() as one, Node() as two, Node() as three:
            to = await held_back(one, two)
            take = two.take

            def drop(address: str, message: bytes) -> None:
                take(address, message)
                two.endpoint.drop(address)

            two.endpoint._on_message = drop
            one.endpoint.drop(to)
            await two.until(lambda: two.contents == [b"first", b"second"])
            two.endpoint._on_message = take
            await three.send_all(to, [b"third"])
            await two.until(lambda: two.contents[2:] == [b"third"])
            assert not two.gone and not failures

    run(scene)


def test_a_peer_that_breaks_the_rules_is_dropped() -> None:
    async def scene() -> None:
        async with Node() as one, Node() as two:
            to = two.endpoint.address
            one.endpoint.send(to, b"x")
            assert await one.endpoint.flushed(to)
            session = one.endpoint._peers[parse(to)].session
            assert session is not None
            one.endpoint._transmit(parse(to), [session.seal(b"sealed")])
            await two.until(lambda: bool(two.gone))
            assert two.endpoint.counters["rejected: malformed"] == 1
            await one.until(lambda: bool(one.gone))  # and is told
            one.endpoint.send(to, b"y")
            await two.until(lambda: two.contents == [b"x", b"y"])

    run(scene)
