"""A network between UDP endpoints in this process's reach: it loses, doubles and delays datagrams.

Each endpoint gets a public address, a socket of the proxy. What an endpoint sends to the public
address of another arrives there as if from its own public address; so all of them know each other
by public addresses only, and every datagram passes here. Datagrams of strangers are dropped.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
from collections.abc import Callable
from itertools import count
from random import Random

Where = tuple[str, int]


class Proxy:
    """Rules may change at any time. `tap` sees what goes through: from, to (both public), bytes."""

    def __init__(
        self,
        seed: int,
        loss: float = 0.0,
        double: float = 0.0,
        delay_ms: tuple[float, float] = (0, 0),
    ) -> None:
        self._rng = Random(seed)
        self.loss, self.double, self.delay_ms = loss, double, delay_ms
        self.tap: Callable[[str, str, bytes], None] | None = None
        self.passed = self.lost = 0
        self._real: dict[str, Where] = {}
        self._public: dict[Where, str] = {}
        self._sockets: dict[str, socket.socket] = {}
        self._cut: set[frozenset[str]] = set()
        self._waiting: list[tuple[float, int, str, str, bytes]] = []
        self._order = count()
        self._alarm: asyncio.TimerHandle | None = None

    def add(self, address: str) -> str:
        """The public address of the endpoint at this one."""
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.bind(("127.0.0.1", 0))
        host, port = address.rsplit(":", 1)
        public = f"127.0.0.1:{made.getsockname()[1]}"
        self._real[public] = (host, int(port))
        self._public[host, int(port)] = public
        self._sockets[public] = made
        asyncio.get_running_loop().add_reader(made, self._readable, public, made)
        return public

    def cut(self, one: str, two: str) -> None:
        """Nothing passes between these public addresses."""
        self._cut.add(frozenset((one, two)))

    def heal(self) -> None:
        self._cut.clear()

    def close(self) -> None:
        for made in self._sockets.values():
            asyncio.get_running_loop().remove_reader(made)
            made.close()
        self._sockets.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    def _readable(self, to: str, made: socket.socket) -> None:
        for _ in range(200):
            try:
                datagram, where = made.recvfrom(1 << 16)
            except BlockingIOError:
                break
            origin = self._public.get(where)
            if origin is not None:
                self._judge(origin, to, datagram)

    def _judge(self, origin: str, to: str, datagram: bytes) -> None:
        if self.tap is not None:
            self.tap(origin, to, datagram)
        if self._rng.random() < self.loss or frozenset((origin, to)) in self._cut:
            self.lost += 1
            return
        for _ in range(1 + (self._rng.random() < self.double)):
            delay_ms = self._rng.uniform(*self.delay_ms)
            if not delay_ms:
                self._pass(origin, to, datagram)
                continue
            due = asyncio.get_running_loop().time() + delay_ms / 1000
            heapq.heappush(self._waiting, (due, next(self._order), origin, to, datagram))
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._waiting and self._alarm is None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_at(self._waiting[0][0], self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = asyncio.get_running_loop().time()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, origin, to, datagram = heapq.heappop(self._waiting)
            self._pass(origin, to, datagram)
        self._set_alarm()

    def _pass(self, origin: str, to: str, datagram: bytes) -> None:
        try:
            self._sockets[origin].sendto(datagram, self._real[to])
            self.passed += 1
        except BlockingIOError:
            self.lost += 1
