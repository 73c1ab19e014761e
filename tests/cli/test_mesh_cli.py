"""`unisono mesh`, `node --listen`, `pub` and `sub`: real processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from support.servers import free_port

from unisono.cli.main import main

_PATIENCE_S = 60


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "unisono", *arguments]


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[list[dict[str, str]]]:
    """Five nodes in two clusters, kept in the folder `mesh`."""
    folder = tmp_path / "mesh"
    size = ("--nodes", "5", "--clusters", "2", "--port", "0")
    up = subprocess.Popen(
        command("mesh", "up", "--json", *size, "--folder", str(folder)), stdout=subprocess.PIPE
    )
    try:
        assert up.stdout is not None
        yield json.loads(up.stdout.readline())["nodes"]
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(_PATIENCE_S) == 0
        assert up.stdout is not None
        up.stdout.close()


def test_a_mesh_to_try_things_out(
    mesh: list[dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "mesh")

    def ask(*arguments: str) -> dict[str, Any]:
        assert main([*arguments, "--json"]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    clusters = ask("mesh", "status", "--folder", folder)["clusters"]
    assert [one["site"] for one in clusters] == ["c0", "c1"]
    assert clusters[0]["coordinators"] == ["n0", "n2"]
    assert clusters[1]["coordinators"] == ["n1", "n3"]

    url = f"mesh://{mesh[4]['address']}?key={folder}/key"
    listening = [
        subprocess.Popen(
            command("sub", url, "news", "--count", "3", *form),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for form in (["--json"], [])
    ]
    for one in listening:
        assert one.stderr is not None
        assert b"listening" in one.stderr.readline()
    assert ask("pub", url, "news", "a", "[red]b", "c" * 300)["published"] == 3
    as_json, as_text = (one.communicate(timeout=_PATIENCE_S)[0] for one in listening)
    events = json.loads(as_json)["events"]
    assert [event["payload"] for event in events] == ["a", "[red]b", "c" * 300]
    assert as_json.count(b"\n") == 5  # an event a line
    assert as_text.decode().splitlines() == [
        "news  a  (in_order)",
        "news  [red]b  (in_order)",
        f"news  {'c' * 300}  (in_order)",
    ]

    shown = ask("top", url, "--every", "1")
    names = [member.partition("-")[0] for member in shown["members"]]
    assert names == [f"n{number}" for number in range(5)]
    assert {name: list(addresses[:2]) for name, addresses in shown["clusters"].items()} == {
        "c0": [mesh[0]["address"], mesh[4]["address"]],
        "c1": [mesh[1]["address"], mesh[3]["address"]],
    }

    seen = ask("mesh", "kill", "n0", "--folder", folder, "--seconds", "5")
    assert seen["lost"] == seen["duplicates"] == 0 and seen["published"] > 50
    assert seen["changes"][-1]["coordinators"] == ["n4", "n2"], "n2 keeps its tree"
    assert main(["mesh", "kill", "n0", "--folder", folder]) == 2


class Nodes:
    """`unisono node` by hand, and whoever talks to them."""

    def __init__(self, folder: Path) -> None:
        self.key = str(folder / "key")
        assert main(["mesh", "key", self.key]) == 0
        self.running: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
        """Returns when it says something."""
        process = subprocess.Popen(
            command(*arguments), stdin=stdin, stdout=PIPE, stderr=PIPE, text=True
        )
        self.running.append(process)
        heard = process.stdout if arguments[0] == "node" else process.stderr
        assert heard is not None and heard.readline()
        return process

    def node(self, listen: str, cluster: str, *more: str, **options: int) -> subprocess.Popen[str]:
        about = ("--listen", listen, "--cluster", cluster, "--key-file", self.key)
        return self.start("node", *about, *more, **options)

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    nodes.end()


def test_the_first_node_comes_back_by_its_own_command(nodes: Nodes) -> None:
    """It knows of nobody and begins a mesh anew, until the others find it: nobody is disturbed."""
    first, second, third = (f"127.0.0.1:{free_port()}" for _ in range(3))
    one = nodes.node(first, "rome")
    for listen, cluster in ((second, "rome"), (third, "oslo")):
        nodes.node(listen, cluster, "--join", first)
    url = f"mesh://{third},{second}?key={nodes.key}"
    heard = nodes.start("sub", url, "t", "--count", "60")
    numbers = [str(number) for number in range(60)]
    publishing = subprocess.Popen(command("pub", url, "t", *numbers, "--rate", "6"))
    assert heard.stdout is not None and heard.stdout.readline() == "t  0  (in_order)\n"
    one.kill()
    again = nodes.node(first, "rome")
    assert publishing.wait(_PATIENCE_S) == 0
    said, problems = heard.communicate(timeout=_PATIENCE_S)
    assert heard.returncode == 0, problems
    assert said.splitlines() == [f"t  {number}  (in_order)" for number in numbers[1:]]
    assert all(node.poll() is None for node in nodes.running[1:3]) and again.poll() is None
    until = time.monotonic() + _PATIENCE_S
    members: list[str] = []
    while len(members) != 3:  # it may take the others a while to find it
        assert time.monotonic() < until, members
        top = subprocess.run(command("top", url, "--json", "--every", "1"), capture_output=True)
        members = json.loads(top.stdout)["members"]


def test_a_node_on_a_leash_ends_with_whoever_holds_it(nodes: Nodes) -> None:
    node = nodes.node(f"127.0.0.1:{free_port()}", "rome", "--leash", stdin=PIPE)
    assert node.stdin is not None
    node.stdin.close()
    node.stdin = None  # `communicate` would close it again
    assert node.wait(_PATIENCE_S) == 0


def test_a_mesh_that_cannot_start_says_so(
    nodes: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    nodes.node(f"127.0.0.1:{port}", "rome")
    where = ("--folder", str(tmp_path / "mesh"), "--nodes", "1")
    assert main(["mesh", "up", *where, "--port", str(port)]) == 3
    assert "n0 did not start" in capsys.readouterr().err
    assert main(["mesh", "up", *where, "--port", "65536"]) == 2


def test_keys_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "key"
    assert main(["mesh", "key", str(file), "--json"]) == 0
    assert file.stat().st_mode & 0o077 == 0
    assert main(["mesh", "key", str(file)]) == 2
    assert file.read_text().split()[-1] not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ("node",),
        ("node", "nats://127.0.0.1:1", "--listen", "127.0.0.1:0"),
        ("node", "--listen", "127.0.0.1:0", "--insecure"),
        ("mesh", "status", "--folder", "nowhere"),
        ("mesh", "up", "--nodes", "0"),
        ("pub", "mesh://127.0.0.1:1?insecure=1", "t", "x", "--count", "0"),
        ("sub", "mesh://127.0.0.1:1?insecure=1", "t", "--count", "-1"),
    ],
)
def test_bad_options_are_refused(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(list(arguments)) == 2


def test_any_port_by_name_and_a_look_that_ends_well(nodes: Nodes) -> None:
    """A node says where it is; others come by the name of its host; Ctrl-C is no failure."""
    about = ("--listen", "localhost:0", "--cluster", "rome", "--key-file", nodes.key, "--json")
    process = subprocess.Popen(command("node", *about), stdout=PIPE, text=True)
    nodes.running.append(process)
    assert process.stdout is not None
    address = json.loads(process.stdout.readline())["address"]
    port = address.rpartition(":")[2]
    assert int(port) > 0
    url = f"mesh://localhost:{port}?key={nodes.key}"
    top = subprocess.Popen(command("top", url, "--every", "0.2"), stdout=PIPE, text=True)
    nodes.running.append(top)
    assert top.stdout is not None
    while "members" not in top.stdout.readline():
        assert top.poll() is None
    top.send_signal(signal.SIGINT)
    top.communicate(timeout=_PATIENCE_S)
    assert top.returncode == 0


def test_visitors_of_a_bus_that_ends(nodes: Nodes) -> None:
    """Lines of any bytes are published; who reads no more, and a bus that is gone, are told."""
    listen = f"127.0.0.1:{free_port()}"
    node = nodes.node(listen, "rome")
    url = f"mesh://{listen}/?key={nodes.key}"
    sub = nodes.start("sub", url, "t", "--json")
    pub = command("pub", "--json", url, "t")
    told = subprocess.run(pub, input=b"a\xff\n\nlast", stdout=PIPE, timeout=_PATIENCE_S, check=True)
    assert json.loads(told.stdout)["published"] == 3
    assert sub.stdout is not None
    lines = [sub.stdout.readline() for _ in range(3)]
    assert json.loads(lines[1].rstrip(",\n"))["payload"] == "a\\xff"
    sub.stdout.close()
    subprocess.run([*pub, "more", "\udcff"], stdout=PIPE, timeout=_PATIENCE_S, check=True)
    assert sub.wait(_PATIENCE_S) == 141
    sub.stdout = None  # `communicate` would read it

    top = subprocess.Popen(command("top", url, "--every", "0.2"), stdout=PIPE, stderr=PIPE)
    nodes.running.append(top)  # type: ignore[arg-type]
    assert top.stdout is not None and b"members" in top.stdout.readline()
    node.send_signal(signal.SIGTERM)
    assert b"has left" in top.communicate(timeout=_PATIENCE_S)[1]
    assert top.returncode == 3


@pytest.fixture
def own_interrupts() -> Iterator[None]:
    """Ctrl-C is as in a process of its own. Where a session of Spark lives it has a handler that
    raises, and what is raised in a destructor is lost."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("asked", [("sub", "t"), ("pub", "t"), ("top",), ("node",)])
@pytest.mark.usefixtures("own_interrupts")
def test_joining_can_be_interrupted(asked: tuple[str, ...]) -> None:
    """By Ctrl-C, as soon as something was sent to a node that does not answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.settimeout(_PATIENCE_S)

        def interrupt() -> None:
            silent.recv(2048)
            os.kill(os.getpid(), signal.SIGINT)

        waiting = threading.Thread(target=interrupt)
        waiting.start()
        name, *rest = asked
        url = f"mesh://127.0.0.1:{silent.getsockname()[1]}?insecure=1"
        assert main([name, url, *rest]) == 130
        waiting.join()
