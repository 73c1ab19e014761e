"""A process with a disk: killed and started again it is the same member, and its numbers go on."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from pathlib import Path

import pytest
from support.servers import NatsServer

import unisono
from unisono.core.effects import Store
from unisono.errors import BadInput
from unisono.net.disk import Disk

_PATIENCE_S = 60


async def node(url: str, disk: Path) -> Process:
    options = ("--json", "--period", "0.2", "--replicas", "1", "--disk", str(disk))
    command = (sys.executable, "-m", "unisono", "node", url)
    process = await create_subprocess_exec(*command, *options, stdout=PIPE)
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), _PATIENCE_S)
    return process


def test_one_copy_on_a_disk_survives_being_killed(nats_server: NatsServer, tmp_path: Path) -> None:
    async def scene() -> list[bytes]:
        host = await node(nats_server.url, tmp_path)
        client = unisono.connect(
            nats_server.url, manage=False, period_s=0.2, patience_s=_PATIENCE_S
        )
        async with client as bus, asyncio.timeout(_PATIENCE_S):
            await bus.subscribe("a", "b")
            for number in range(10):
                await (await bus.publish("ab"[number % 2], b"%d" % number))
            os.kill(host.pid, signal.SIGKILL)
            await host.wait()
            receipts = [await bus.publish("ab"[n % 2], b"%d" % n) for n in range(10, 20)]
            host = await node(nats_server.url, tmp_path)
            for receipt in receipts:
                await receipt  # by the same manager, with the numbers that follow
            heard = [await bus.notify() for _ in range(20)]
        host.terminate()
        await host.wait()
        assert all(event.status is unisono.Status.IN_ORDER for event in heard)
        return [event.payload for event in heard]

    heard = asyncio.run(scene())
    assert sorted(heard, key=int) == [b"%d" % number for number in range(20)]


def test_what_is_written_is_there_after_a_restart(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    assert disk.node_id("first") == "first"
    disk.write([Store("a", b"1"), Store("b", b"2")])
    disk.write([Store("a", None), Store("b", b"3")])
    disk.close()
    disk = Disk(tmp_path)
    assert disk.load() == {"b": b"3"}
    assert disk.node_id("second") == "first"
    disk.close()


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with pytest.raises(BadInput, match="cannot keep state"):
        Disk(tmp_path)
    disk.close()


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot keep state"):
        Disk(tmp_path / "file")


@pytest.mark.parametrize("killed", [True, False])
def test_a_publisher_that_restarts_with_its_disk_goes_on(tmp_path: Path, killed: bool) -> None:
    """Its requests once were taken for those of its former life: acknowledged, never notified."""

    async def scene() -> list[unisono.Delivery]:
        async with asyncio.timeout(_PATIENCE_S), unisono.connect("memory://lives") as reader:
            await reader.subscribe("t")
            for life in range(3):
                connection = unisono.connect("memory://lives", disk=tmp_path, period_s=0.1)
                bus = await connection.open()
                for number in range(3):
                    await (await bus.publish("t", b"%d" % (3 * life + number)))
                if killed:
                    await bus._runtime.stop()
                    bus._shut()
                else:
                    await bus.close()
            return [await reader.notify() for _ in range(9)]

    heard = asyncio.run(scene())
    assert [event.payload for event in heard] == [b"%d" % number for number in range(9)]
    assert len({event.id for event in heard}) == 9
    assert len({event.publisher for event in heard}) == 1


def test_lives_are_counted(tmp_path: Path) -> None:
    for life in range(3):
        disk = Disk(tmp_path)
        assert disk.life() == life
        assert disk.load() == {}
        disk.close()


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    Disk(tmp_path).close()
    with sqlite3.connect(tmp_path / "node.sqlite") as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    with pytest.raises(BadInput, match="another version"):
        Disk(tmp_path)
