"""TCP packets as several sites see them, generated; who scans is known.

Scanners probe a few ports at every site, too few for any one to notice. A probe is an incomplete
connection: SYN, SYN-ACK and then RST, or nothing at all. Others complete their connections, but for
a few that break.
"""

from __future__ import annotations

from random import Random

import msgspec

from unisono.core.entropy import stream

SYN, SYN_ACK, ACK, RST = "SYN", "SYN-ACK", "ACK", "RST"


class Packet(msgspec.Struct, frozen=True):
    """One packet of a connection, which is named by who began it."""

    site: int
    source: str
    connection: str  # target and ports
    flag: str
    at_ms: int


class Traffic(msgspec.Struct, frozen=True):
    """By time; and the addresses of scanners, if they are known."""

    packets: list[Packet]
    scanners: frozenset[str] | None
    sites: int


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What traffic to make."""

    seed: int = 0
    seconds: float = 20.0
    sites: int = 4
    clients: int = 150
    connections_per_s: float = 80.0
    broken: float = 0.01  # of the connections of clients
    scanners: int = 12
    probes: int = 12  # of a scanner, over all sites


def generate(wish: Wish) -> Traffic:
    rng = stream(wish.seed, "traffic")
    addresses = [f"10.{n >> 8}.{n & 255}.7" for n in rng.sample(range(1 << 16), 1000)]
    scanners, clients = addresses[: wish.scanners], addresses[wish.scanners :][: wish.clients]
    packets: list[Packet] = []
    for _ in range(round(wish.seconds * wish.connections_per_s)):
        incomplete = rng.random() < wish.broken
        begun = rng.uniform(0, wish.seconds)
        site = rng.randrange(wish.sites)
        packets += _connection(rng, site, rng.choice(clients), begun, incomplete)
    for scanner in scanners:
        for probe in range(wish.probes):
            begun = rng.uniform(0.1, 0.9) * wish.seconds
            packets += _connection(rng, probe % wish.sites, scanner, begun, incomplete=True)
    packets.sort(key=lambda packet: packet.at_ms)
    return Traffic(packets, frozenset(scanners), wish.sites)


def _connection(
    rng: Random, site: int, source: str, begun_s: float, incomplete: bool
) -> list[Packet]:
    name = (
        f"192.168.{site}.{rng.randrange(1, 255)}:{rng.randrange(1, 1024)}<{rng.randrange(1 << 16)}"
    )
    flags = [SYN, SYN_ACK]
    if not incomplete:
        flags.append(ACK)
    elif rng.random() < 0.7:
        flags.append(RST)
    at, packets = begun_s * 1000, []
    for flag in flags:
        packets.append(Packet(site, source, name, flag, round(at)))
        at += 5 + rng.expovariate(1 / 20)
    return packets
