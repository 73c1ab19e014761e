"""Addresses as people give them: with host names, which are looked up once, when a process joins.

On the wire, and everywhere else, addresses are numbers (`datagrams.parse`).
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable

from unisono.errors import BadInput
from unisono.net import loop
from unisono.net.datagrams import parse, text

_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*\.?")
_NUMBERS = re.compile(r"[0-9.]+")  # a mistyped 127.0.0.1; resolvers make something of it


def check(address: str) -> None:
    """BadInput unless it has the form of an address, or of a host name and a port."""
    host, _, port = address.rpartition(":")
    named = _NAME.fullmatch(host) and not _NUMBERS.fullmatch(host)
    try:
        parse(f"127.0.0.1:{port}" if named else address)
    except BadInput:
        raise BadInput(
            f"{address!r} is not an address: it is HOST:PORT, as in 127.0.0.1:7400, [::1]:7400 or "
            "node-1.example:7400, with a port of up to 65535"
        ) from None


async def look_up(
    addresses: Iterable[str], patience_s: float
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """What they stand for, IPv4 first: that is where most listen if a host has both. And for which
    there is nothing, and why."""
    wanted = list(dict.fromkeys(addresses))
    answers = await asyncio.gather(*(_one(address, patience_s) for address in wanted))
    found = {a: answer for a, answer in zip(wanted, answers, strict=True) if answer}
    problems = {
        address: f"no address is known of {address.rpartition(':')[0]}: is it spelled right, and "
        "does this machine's resolver know it?"
        for address in wanted
        if address not in found
    }
    return found, problems


async def _one(address: str, patience_s: float) -> list[str]:
    check(address)
    try:
        return [text(parse(address))]
    except BadInput:
        host, _, port = address.rpartition(":")
    number = int(port)
    try:
        async with asyncio.timeout(patience_s):
            told = await loop.in_thread(
                lambda: socket.getaddrinfo(host, number, type=socket.SOCK_DGRAM)
            )
    except (OSError, UnicodeError):  # of which those of the resolver and the timeout are
        return []
    hosts = dict.fromkeys(str(at[0]) for *_, at in told)
    usable = [host for host in hosts if "%" not in host]  # others need an interface
    return [text((host, number)) for host in sorted(usable, key=lambda host: ":" in host)]


def of_family(addresses: list[str], other: str) -> list[str]:
    """Those that a socket at the other address can send to."""
    return [a for a in addresses if a.startswith("[") == other.startswith("[")]
