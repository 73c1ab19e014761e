"""A nats-server that is killed and started again: the bus resumes, and what was lost is said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.servers import NatsServer

import unisono
from unisono import Bus, NotAcknowledged, Status

_PATIENCE_S = 60


async def read_until(bus: Bus, last: bytes) -> list[unisono.Delivery]:
    heard = []
    async with asyncio.timeout(_PATIENCE_S):
        async for event in bus:
            heard.append(event)
            if event.payload == last:
                return heard
    raise AssertionError("the bus ended")


def test_the_bus_resumes_after_the_server_was_killed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def scene() -> None:
        url = nats_server.url
        options = {"hold_s": 1.0, "patience_s": 20.0}
        async with (
            unisono.connect(url, trace=tmp_path, name="x", **options) as x,  # type: ignore[arg-type]
            unisono.connect(url, trace=tmp_path, name="y", **options) as y,  # type: ignore[arg-type]
        ):
            await asyncio.gather(x.subscribe("a", "b"), y.subscribe("a", "b"))
            reading = [asyncio.create_task(read_until(bus, b"the end")) for bus in (x, y)]
            receipts = []
            for number in range(300):
                receipts.append(await x.publish("a", b"a%d" % number))
                receipts.append(await y.publish("b", b"b%d" % number))
                if number in (100, 200):  # in the middle of traffic
                    nats_server.kill()
                    nats_server.start()
            results = await asyncio.gather(*receipts, return_exceptions=True)
            assert all(result is None for result in results), results
            await (await x.publish("a", b"the end"))
            heard = await asyncio.gather(*reading)
            for bus, events in zip((x, y), heard, strict=True):
                assert any("lost; waiting" in text for text in bus.troubles)
                assert any("again" in text for text in bus.troubles)
                assert all(isinstance(event.status, Status) for event in events)
            untagged = [[e.id for e in events if e.in_order] for events in heard]
            common = set(untagged[0]) & set(untagged[1])
            assert [e for e in untagged[0] if e in common] == [
                e for e in untagged[1] if e in common
            ]
            # Nothing is missing without a word: fewer events than published means a gap was said.
            for bus, events in zip((x, y), heard, strict=True):
                if len(events) < 601:
                    said = [e for e in events if e.status is Status.GAP_SKIPPED]
                    assert said or any("lost in an interruption" in t for t in bus.troubles)

    asyncio.run(scene())


def test_publishing_while_the_server_is_away_waits_and_then_goes_out(
    nats_server: NatsServer,
) -> None:
    async def scene() -> None:
        async with unisono.connect(nats_server.url, patience_s=20.0) as bus:
            await bus.subscribe("a")
            nats_server.kill()
            receipt = await bus.publish("a", b"meanwhile")
            assert not receipt.acknowledged
            nats_server.start()
            async with asyncio.timeout(_PATIENCE_S):
                await receipt
            assert (await read_until(bus, b"meanwhile"))[0].status is Status.IN_ORDER

    asyncio.run(scene())


def test_without_a_server_a_receipt_says_so_in_time(nats_server: NatsServer) -> None:
    async def scene() -> None:
        host = await unisono.connect(nats_server.url).open()
        guest = await unisono.connect(nats_server.url, manage=False, patience_s=0.3).open()
        nats_server.kill()
        receipt = await guest.publish("a", b"never")
        with pytest.raises(NotAcknowledged, match=r"no stamp within 0\.3 s"):
            async with asyncio.timeout(_PATIENCE_S):
                await receipt
        assert guest.unacknowledged == 1
        assert "publications not acknowledged in time: 1" in guest.troubles
        nats_server.start()
        await guest.close()
        await host.close()

    asyncio.run(scene())
