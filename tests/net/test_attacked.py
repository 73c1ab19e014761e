"""An endpoint that is attacked by strangers, on real sockets: it counts, ignores and goes on."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections import Counter
from random import Random

import pytest
from support.endpoints import Node, run, turn
from support.proxy import Proxy

from unisono.net.datagrams import parse
from unisono.net.handshake import HELLO_BYTES, Sessions
from unisono.net.keys import Key
from unisono.net.sealing import HEADER, VERSION


class Attacker:
    """A socket that throws datagrams at an endpoint, never more at once than that one's buffer
    holds, and knows why each should be refused."""

    def __init__(self, target: Node) -> None:
        self.target = target
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.expected: Counter[str] = Counter()
        self.thrown = 0

    def throw(self, datagram: bytes, reason: str, through: socket.socket | None = None) -> None:
        (through or self.socket).sendto(datagram, parse(self.target.endpoint.address))
        self.expected[reason] += 1
        self.thrown += 1


def wrong_keys(rng: Random) -> list[bytes]:
    """Hellos under other keys."""
    found = []
    for _ in range(50):
        stranger = Sessions(Key(rng.randbytes(32)), rng.randbytes)
        stranger.connect("x", 0)
        found += [datagram for _, datagram in stranger.outbox]
    return found


def test_fuzz_a_live_endpoint() -> None:
    """100,000 datagrams of all bad kinds are counted, each by its reason, and ignored, while the
    endpoint serves a peer; what it holds does not grow."""

    async def scene() -> None:
        rng = Random(2024)
        proxy = Proxy(1)
        recorded: list[bytes] = []
        async with Node() as target, Node() as peer:
            public = proxy.add(target.endpoint.address)
            proxy.add(peer.endpoint.address)
            proxy.tap = lambda origin, to, d: recorded.append(d) if to == public else None
            await peer.send_all(public, [bytes(3000)] * 200)
            assert await peer.endpoint.flushed(public)
            proxy.tap = None
            assert sum(target.endpoint._sessions.rejected.values()) == 0
            attacker = Attacker(target)
            # the proxy's socket of the peer: what comes from there has the peer's address
            inside = proxy._sockets[target.messages[0][0]]
            data = [d for d in recorded if d[1] == 4]
            strangers = wrong_keys(rng)
            live = next(iter(target.endpoint._sessions._by_id))

            def strike(kind: int) -> None:
                old = rng.choice(data)
                if kind == 0:
                    attacker.throw(rng.choice(strangers), "wrong key")
                elif kind == 1:
                    attacker.throw(old, "replayed", inside)
                elif kind == 2:
                    attacker.throw(old[: rng.randrange(30)], "too short", inside)
                elif kind == 3:
                    attacker.throw(old + bytes(1473 + rng.randrange(500) - len(old)), "too long")
                elif kind == 4:
                    malformed = bytes((VERSION, rng.randrange(6, 256)))
                    attacker.throw(malformed + rng.randbytes(100), "malformed")
                elif kind == 5:
                    other = rng.choice([n for n in range(256) if n != VERSION])
                    attacker.throw(bytes((other,)) + old[1:], "unknown version")
                elif kind == 6:
                    head = HEADER.pack(VERSION, 4, live ^ rng.randrange(1, 1 << 32), 7)
                    attacker.throw(head + rng.randbytes(100), "unknown session")
                elif kind == 7:  # a counter that was not used: only the tag can tell
                    head = HEADER.pack(VERSION, 4, live, rng.randrange(1 << 20, 1 << 60))
                    attacker.throw(
                        head + rng.randbytes(rng.randrange(16, 1400)), "wrong key", inside
                    )
                elif kind == 8:
                    attacker.throw(old[: rng.randrange(30, len(old))], "replayed", inside)
                else:
                    attacker.throw(old, "unverified")

            async def rounds(count: int) -> None:
                rejected = target.endpoint._sessions.rejected
                for number in range(count):
                    target.messages.clear()
                    assert peer.endpoint.send(public, number.to_bytes(4, "big"))
                    for _ in range(100):
                        strike(rng.randrange(10))
                    await turn(lambda: sum(rejected.values()) == attacker.thrown)
                    await target.until(lambda: len(target.messages) == 1)
                    assert target.contents == [number.to_bytes(4, "big")]

            await rounds(40)
            gc.collect()
            before = sys.getallocatedblocks()
            await rounds(960)
            gc.collect()
            after = sys.getallocatedblocks()
            assert attacker.thrown == 100_000
            assert await peer.endpoint.flushed(public)
            found = {
                name.removeprefix("rejected: "): n
                for name, n in target.endpoint.counters.items()
                if name.startswith("rejected") and n
            }
            assert found == attacker.expected and len(found) == 8
            assert after - before < 300  # pieces of memory
            assert len(target.endpoint._sessions) == len(target.endpoint._peers) == 1
            assert not target.gone and not peer.gone
            with pytest.raises(BlockingIOError):
                attacker.socket.recv(2000)  # nothing was answered
            attacker.socket.close()
        proxy.close()

    run(scene)


def test_strangers_get_no_more_than_they_send() -> None:
    """Old hellos, sent again from addresses that prove nothing."""

    async def scene() -> None:
        proxy = Proxy(1)
        recorded: list[bytes] = []
        async with Node() as target, Node() as peer:
            public = proxy.add(target.endpoint.address)
            proxy.add(peer.endpoint.address)
            proxy.tap = lambda origin, to, d: recorded.append(d) if to == public else None
            await peer.send_all(public, [bytes(3000)] * 20)
            assert await peer.endpoint.flushed(public)
            hellos = sum(len(d) == HELLO_BYTES and d[1] == 1 for d in recorded)
            assert hellos >= 1
            attackers = [Attacker(target) for _ in range(20)]
            began = target.endpoint.counters["datagrams in"]
            for attacker in attackers:
                for datagram in recorded:
                    attacker.throw(datagram, "")
            total = sum(attacker.thrown for attacker in attackers)
            await turn(lambda: target.endpoint.counters["datagrams in"] >= began + total)
            for attacker in attackers:
                got: list[int] = []
                while len(got) < hellos:
                    try:
                        got.append(len(attacker.socket.recv(2000)))
                    except BlockingIOError:
                        await asyncio.sleep(0)
                with pytest.raises(BlockingIOError):
                    attacker.socket.recv(2000)
                assert sum(got) <= 3 * sum(map(len, recorded))
                assert max(got) <= HELLO_BYTES  # of each, what it sent
                attacker.socket.close()
            assert len(target.endpoint._sessions) == 1 and len(target.endpoint._peers) == 1
        proxy.close()

    run(scene)
