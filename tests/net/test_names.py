"""Host names in addresses of a mesh: what they stand for, and where nothing does."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unisono.errors import BadInput, EnvironmentLacks
from unisono.net import names
from unisono.net.datagrams import parse
from unisono.net.mesh import MeshService, Settings

_PATIENCE_S = 30


@pytest.mark.parametrize("families", [[4, 6], [6, 4]])
def test_of_several_addresses_those_are_taken_that_fit(
    families: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name may stand for both kinds, and for several hosts."""
    numbers = {4: ["127.0.0.1:7", "127.0.0.2:7"], 6: ["[::1]:7", "[::2]:7"]}

    def told(host: str, port: int, type: int) -> list[tuple[object, ...]]:
        if host != "both":
            raise socket.gaierror("no such host")
        found = [parse(at) for family in families for at in numbers[family]]
        return [(0, type, 0, "", at) for at in (*found, *found)]

    monkeypatch.setattr(socket, "getaddrinfo", told)

    async def scene() -> None:
        for listen, seeds in (
            (None, ("both:7",)),
            ("both:7", ("both:7",)),
            ("both:7", ("nobody:1", "both:7")),
            ("[::1]:0", ("both:7",)),
        ):
            troubles: list[str] = []
            service = MeshService(Settings(listen=listen, seeds=seeds))
            service._on_trouble = troubles.append
            at, _, near = await service._places()
            family = 6 if listen == "[::1]:0" else 4  # where a node that says nothing listens
            assert near == numbers[family] and at.startswith("[") == (family == 6)
            assert len(troubles) == len(seeds) - 1

    asyncio.run(scene())


def test_a_resolver_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait(_PATIENCE_S))

    async def scene() -> None:
        service = MeshService(Settings(seeds=("slow:7",)), connect_s=0.01)
        with pytest.raises(EnvironmentLacks, match="no address is known of slow"):
            await service._places()

    asyncio.run(scene())
    answers.set()


@settings(max_examples=300)
@given(st.text(max_size=80) | st.from_regex(r"[a-z0-9.-]{0,70}:[0-9]{0,6}", fullmatch=True))
def test_any_text_is_an_address_or_is_refused(given: str) -> None:
    try:
        names.check(given)
    except BadInput:
        return
    host, _, port = given.rpartition(":")
    assert host and 0 <= int(port) < 1 << 16
