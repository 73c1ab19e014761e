"""The devices on the way to an address, as far as they tell: a traceroute without privileges.

Small datagrams are sent with few hops to live; the routers that let them die say so, and Linux
hands that to the socket that sent them. Routers that keep silent are left out. Elsewhere than on
Linux nothing is found. The other end counts the datagrams that reach it as too short.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys

from unisono.net.datagrams import Sockaddr

HOPS = 20
WAIT_S = 0.5
_IP_RECVERR, _IPV6_RECVERR = 11, 25  # Linux; the socket module lacks them
_ERROR = struct.Struct("=IBBBBII")  # sock_extended_err; then the address of who sent it
_FROM_ICMP, _FROM_ICMP6 = 2, 3
_EXCEEDED, _EXCEEDED6 = 11, 3


async def traceroute(to: Sockaddr, hops: int = HOPS, wait_s: float = WAIT_S) -> tuple[str, ...]:
    """The routers between here and there, the nearest first."""
    if sys.platform != "linux":
        return ()
    loop = asyncio.get_running_loop()
    found: dict[int, str] = {}
    sockets: list[socket.socket] = []
    try:
        for ttl in range(1, hops + 1):
            try:
                probe = _probe(to, ttl)
                sockets.append(probe)
                loop.add_reader(probe, _hear, probe, ttl, found)
                probe.connect(to)
                probe.send(b"?")
            except OSError:  # no way there, or told so already, or no more sockets are to be had
                break
        await asyncio.sleep(wait_s)
    finally:
        for probe in sockets:
            loop.remove_reader(probe)
            probe.close()
    return tuple(dict.fromkeys(found[ttl] for ttl in sorted(found)))


def _probe(to: Sockaddr, ttl: int) -> socket.socket:
    v6 = ":" in to[0]
    probe = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
    probe.setblocking(False)
    if v6:
        probe.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, ttl)
    else:
        probe.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        probe.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
    return probe


def _hear(probe: socket.socket, ttl: int, found: dict[int, str]) -> None:
    try:
        _, told, _, _ = probe.recvmsg(64, 256, socket.MSG_ERRQUEUE)
    except OSError:
        asyncio.get_running_loop().remove_reader(probe)
        return
    for _, kind, data in told:
        if kind not in (_IP_RECVERR, _IPV6_RECVERR) or len(data) < _ERROR.size:
            continue
        _, origin, icmp, _, _, _, _ = _ERROR.unpack_from(data)
        who = data[_ERROR.size :]
        if (origin, icmp) == (_FROM_ICMP, _EXCEEDED) and len(who) >= 8:
            found[ttl] = socket.inet_ntop(socket.AF_INET, who[4:8])
        elif (origin, icmp) == (_FROM_ICMP6, _EXCEEDED6) and len(who) >= 24:
            found[ttl] = socket.inet_ntop(socket.AF_INET6, who[8:24])
