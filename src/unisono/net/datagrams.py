"""A UDP socket that passes many datagrams per call, where the system can. Never blocks.

On Linux datagrams for one address go to the kernel in one call (UDP_SEGMENT) and those of one
address come from it in one (UDP_GRO); elsewhere each in its own. What the kernel has no room for
waits, up to a bound; what cannot be sent is counted and lost, like anything on the way.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections import deque
from struct import Struct

from unisono.errors import BadInput, EnvironmentLacks

BATCH = 44  # full datagrams that fit into one call
_SEGMENT, _GRO = 103, 104  # Linux: UDP_SEGMENT, UDP_GRO of udp.h; the socket module lacks them
_GRO_SPACE = socket.CMSG_SPACE(4)
_GRO_SIZE = Struct("=i")
_SEGMENT_SIZE = Struct("=H")
_SOCKET_BYTES = 4 << 20
_BACKLOG = 256  # calls' worth that wait for room: further ones are lost

Sockaddr = tuple[str, int]


def parse(address: str) -> Sockaddr:
    """The socket address of "127.0.0.1:7400" or "[::1]:7400", or BadInput."""
    host, _, port = address.rpartition(":")
    v6 = host.startswith("[") and host.endswith("]")
    family = socket.AF_INET6 if v6 else socket.AF_INET
    try:
        packed = socket.inet_pton(family, host[1:-1] if v6 else host)
    except (OSError, ValueError):  # ValueError: a NUL in it
        packed = b""
    number = port.isascii() and port.isdigit() and len(port) <= 5
    if not packed or not number or int(port) >= 1 << 16:
        raise BadInput(f"{address!r} is not an address like 127.0.0.1:7400 or [::1]:7400")
    return socket.inet_ntop(family, packed), int(port)


def text(address: Sockaddr) -> str:
    """The inverse of `parse`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Datagrams:
    """The socket."""

    def __init__(self, listen: Sockaddr, batched: bool = True) -> None:
        self.v6 = ":" in listen[0]
        self.sent = self.errors = 0
        # several datagrams per call, in and out
        self._gathers = self._segments = batched and sys.platform == "linux"
        self._backlog: deque[tuple[Sockaddr, list[bytes]]] = deque()
        self._buffer = memoryview(bytearray(1 << 16))
        self._socket = socket.socket(
            socket.AF_INET6 if self.v6 else socket.AF_INET, socket.SOCK_DGRAM
        )
        try:
            self._open(listen)
        except OSError as error:
            self._socket.close()
            raise EnvironmentLacks(f"cannot listen on {text(listen)}: {error.strerror}") from None
        self.address = text(self._socket.getsockname()[:2])

    def _open(self, listen: Sockaddr) -> None:
        made = self._socket
        made.setblocking(False)
        if self.v6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            made.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
        made.bind(listen)
        if self._gathers:
            try:
                made.setsockopt(socket.IPPROTO_UDP, _GRO, 1)
            except OSError:
                self._gathers = self._segments = False  # a kernel before 5.0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def receive(self) -> tuple[memoryview, int, Sockaddr] | None:
        """Datagrams of one address, one behind the other, and the size of all but the last; None
        if nothing waits. To be used before the next call."""
        try:
            if self._gathers:
                size, control, _, where = self._socket.recvmsg_into([self._buffer], _GRO_SPACE)
                segment = _GRO_SIZE.unpack(control[0][2])[0] if control else size
            else:
                size, where = self._socket.recvfrom_into(self._buffer)
                segment = size
        except BlockingIOError:
            return None
        except OSError:  # of an earlier datagram, as some systems report it
            self.errors += 1
            return None
        return self._buffer[:size], segment, where[:2] if self.v6 else where

    @property
    def full(self) -> bool:
        """Whether something waits for room; then `drain` when the socket is writable."""
        return bool(self._backlog)

    def send(self, to: Sockaddr, datagrams: list[bytes]) -> None:
        if len(self._backlog) >= _BACKLOG:
            self.errors += len(datagrams)
        elif self._backlog:
            self._backlog.append((to, datagrams))
        elif left := self._write(to, datagrams):
            self._backlog.append((to, left))

    def drain(self) -> None:
        while self._backlog:
            to, datagrams = self._backlog.popleft()
            if left := self._write(to, datagrams):
                self._backlog.appendleft((to, left))
                return

    def _write(self, to: Sockaddr, datagrams: list[bytes]) -> list[bytes]:
        """Send; what the socket has no room for is returned."""
        made = self._socket
        at, end = 0, len(datagrams)
        while at < end:
            run = run_of(datagrams, at) if self._segments else 1
            try:
                if run > 1:
                    size = _SEGMENT_SIZE.pack(len(datagrams[at]))
                    control = [(socket.IPPROTO_UDP, _SEGMENT, size)]
                    made.sendmsg(datagrams[at : at + run], control, 0, to)
                else:
                    made.sendto(datagrams[at], to)
                self.sent += run
            except BlockingIOError:
                return datagrams[at:]
            except OSError as error:
                if run > 1 and error.errno in (errno.EINVAL, errno.EIO, errno.ENOPROTOOPT):
                    self._segments = False  # this way out does not do it
                    continue
                self.errors += 1
            at += run
        return []


def run_of(datagrams: list[bytes], at: int) -> int:
    """How many of them go in one call: all of one size, but for the last, which may be shorter."""
    size = len(datagrams[at])
    end = min(len(datagrams), at + BATCH)
    for index in range(at + 1, end):
        if len(datagrams[index]) != size:
            return index - at + (len(datagrams[index]) < size)
    return end - at
