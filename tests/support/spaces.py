"""Networks of this machine's own: namespaces in a row, joined by routers. They need root."""

from __future__ import annotations

import shutil
import subprocess
from uuid import uuid4

import pytest


class Row:
    """`with Row(3) as row`: five namespaces; the three in the middle route between the ends."""

    def __init__(self, routers: int) -> None:
        tag = uuid4().hex[:6]
        self.names = [f"u{tag}{number}" for number in range(routers + 2)]

    def address(self, place: int, side: int) -> str:
        """Of a namespace, towards the one before (0) or after (1)."""
        net = place - 1 if side == 0 else place
        return f"10.77.{net}.{2 if side == 0 else 1}"

    @property
    def ends(self) -> tuple[str, str]:
        return self.address(0, 1), self.address(len(self.names) - 1, 0)

    def command(self, place: int, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.names[place], *words]

    def __enter__(self) -> Row:
        if shutil.which("ip") is None:
            pytest.skip("there is no `ip` here")
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            pytest.skip(f"namespaces cannot be made here: {error.stderr.decode().strip()}")
        return self

    def _make(self) -> None:
        last = len(self.names) - 1
        for name in self.names:
            _run("ip", "netns", "add", name)
        for place, name in enumerate(self.names):
            _run(*self.command(place, "ip", "link", "set", "lo", "up"))
            _run(*self.command(place, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
            # answers to probes are not rationed
            _run(*self.command(place, "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0"))
            if place < last:
                mine, theirs = f"r{place}", f"l{place + 1}"
                other = self.names[place + 1]
                _run(
                    "ip",
                    "link",
                    "add",
                    mine,
                    "netns",
                    name,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    theirs,
                    "netns",
                    other,
                )
                _run(
                    *self.command(
                        place, "ip", "addr", "add", f"{self.address(place, 1)}/24", "dev", mine
                    )
                )
                _run(*self.command(place, "ip", "link", "set", mine, "up"))
                _run(
                    *self.command(
                        place + 1,
                        "ip",
                        "addr",
                        "add",
                        f"{self.address(place + 1, 0)}/24",
                        "dev",
                        theirs,
                    )
                )
                _run(*self.command(place + 1, "ip", "link", "set", theirs, "up"))
        for place in range(len(self.names)):
            for net in range(last):
                if net in (place - 1, place):
                    continue  # it is there itself
                via = self.address(place - 1, 1) if net < place else self.address(place + 1, 0)
                _run(*self.command(place, "ip", "route", "add", f"10.77.{net}.0/24", "via", via))

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _run(*words: str) -> None:
    subprocess.run(words, capture_output=True, check=True)
