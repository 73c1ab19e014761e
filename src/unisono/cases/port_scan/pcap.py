"""TCP packets of captured files, one file for each site."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from unisono.cases.port_scan.traffic import ACK, RST, SYN, SYN_ACK, Packet, Traffic
from unisono.errors import BadInput, EnvironmentLacks

KNOWN_MAX = 1 << 16  # connections whose beginning is remembered; the oldest is forgotten

End = tuple[str, int]


def captured(files: Sequence[Path], scanners: frozenset[str] | None) -> Traffic:
    """All of them, from the time of the first packet on."""
    found = [packet for site, path in enumerate(files) for packet in _packets(path, site)]
    if not found:
        raise BadInput(f"{files[0]}: no TCP packets")
    found.sort(key=lambda packet: packet.at_ms)
    first = found[0].at_ms
    packets = [Packet(p.site, p.source, p.connection, p.flag, p.at_ms - first) for p in found]
    return Traffic(packets, scanners, len(files))


def _packets(path: Path, site: int) -> Iterator[Packet]:
    """The packets that begin, answer, complete or break connections."""
    try:
        import dpkt
    except ImportError as error:
        raise EnvironmentLacks(
            f"captured files need dpkt ({error}): pip install 'unisono[pcap]'"
        ) from error
    known: dict[tuple[End, End], None] = {}  # who began, and with whom
    try:
        with path.open("rb") as file:
            reader = dpkt.pcap.UniversalReader(file)
            link = dpkt.ethernet.Ethernet if reader.datalink() == dpkt.pcap.DLT_EN10MB else None
            if link is None:
                raise BadInput(f"{path}: only captures of Ethernet are read")
            for at_s, raw in reader:
                layer = link(raw).data
                tcp = getattr(layer, "data", None)
                if not isinstance(layer, dpkt.ip.IP | dpkt.ip6.IP6) or not isinstance(
                    tcp, dpkt.tcp.TCP
                ):
                    continue
                ends = (_address(layer.src), tcp.sport), (_address(layer.dst), tcp.dport)
                told = _meaning(tcp.flags, ends, known)
                if told is not None:
                    (source, port), (target, target_port), flag = told
                    name = f"{target}:{target_port}<{port}"
                    yield Packet(site, source, name, flag, round(at_s * 1000))
    except (OSError, ValueError, dpkt.Error) as error:
        raise BadInput(f"{path}: not a capture that can be read: {error}") from None


def _address(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def _meaning(
    flags: int, ends: tuple[End, End], known: dict[tuple[End, End], None]
) -> tuple[End, End, str] | None:
    """Who began the connection, with whom, and what the packet says about it."""
    import dpkt

    one, other = ends
    if flags & dpkt.tcp.TH_SYN and not flags & dpkt.tcp.TH_ACK:
        known[one, other] = None
        if len(known) > KNOWN_MAX:
            del known[next(iter(known))]
        return one, other, SYN
    if flags & dpkt.tcp.TH_SYN:
        return (other, one, SYN_ACK) if (other, one) in known else None
    if (one, other) not in known:
        return None
    if flags & dpkt.tcp.TH_RST:
        del known[one, other]
        return one, other, RST
    if flags & dpkt.tcp.TH_ACK:
        del known[one, other]
        return one, other, ACK
    return None
