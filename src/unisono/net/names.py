"""Addresses as people give them: with host names, which are looked up once, when a process joins.

On the wire, and everywhere else, addresses are numbers (`datagrams.parse`).
"""

from __future__ import annotations

import asyncio
import re
import socket

from unisono.errors import BadInput, EnvironmentLacks
from unisono.net.datagrams import parse, text

_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]+)*\.?")
_NUMBERS = re.compile(r"[0-9.]+")  # a mistyped 127.0.0.1; resolvers make something of it


def check(address: str) -> None:
    """BadInput unless it has the form of an address, or of a host name and a port."""
    host, _, port = address.rpartition(":")
    try:
        parse(address)
    except BadInput:
        parse(f"127.0.0.1:{port}" if _NAME.fullmatch(host) else address)
        if _NUMBERS.fullmatch(host):
            raise


async def look_up(address: str) -> list[str]:
    """The addresses that it stands for."""
    check(address)
    try:
        return [text(parse(address))]
    except BadInput:
        pass
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)
    except OSError as error:  # of which those of the resolver are
        found, why = [], f" ({error.strerror})"
    else:
        why = ""
    numbers = (str(at[0]) for _, _, _, _, at in found)
    usable = [number for number in numbers if "%" not in number]  # others need an interface
    if not usable:
        raise EnvironmentLacks(
            f"no address is known of {host}{why}: is it spelled right, and does this machine's "
            "resolver know it?"
        )
    return list(dict.fromkeys(text((number, int(port))) for number in usable))


def of_family(addresses: list[str], other: str) -> list[str]:
    """Those that a socket at the other address can send to."""
    return [a for a in addresses if a.startswith("[") == other.startswith("[")]
