"""Several nodes of a mesh as processes of this machine, kept in a folder: for trying things out.

The folder has the key, a list of the nodes and what each of them had to say. It is held by the
process that started them; whoever else looks at it sees who runs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from unisono.errors import BadInput, EnvironmentLacks
from unisono.files import hold, is_held, replace
from unisono.net.keys import make_key

KEY = "key"
_NODES = "nodes.json"
_LOCK = "lock"


class FleetNode(msgspec.Struct):
    """A node that was started here; without a process id it runs no more."""

    name: str
    address: str
    cluster: str
    pid: int | None


class Fleet:
    """The nodes of one folder, as the process that starts and ends them."""

    def __init__(self, folder: Path, count: int, clusters: int, port: int, host: str) -> None:
        if not 1 <= clusters <= count <= 200:
            raise BadInput("between 1 and 200 nodes, and at least one in each cluster")
        if port and not 0 < port <= (1 << 16) - count:
            raise BadInput(f"{count} ports from {port} on: there are none above 65535")
        self.folder = folder
        self._lock = hold(folder, _LOCK, "a mesh")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        if not (folder / KEY).exists():
            make_key(folder / KEY)
        ports = range(port, port + count) if port else _free_ports(host, count)
        self.nodes = [
            FleetNode(f"n{number}", f"{host}:{at}", f"c{number % clusters}", None)
            for number, at in enumerate(ports)
        ]
        self._write()  # an older list must not be taken for this one

    def start(self, node: FleetNode, trace: Path | None = None) -> None:
        """Let it run; it joins the others by itself."""
        others = [other.address for other in self.nodes if other.pid is not None][:3]
        command = [sys.executable, "-m", "unisono", "node", "--listen", node.address]
        command += ["--cluster", node.cluster, "--key-file", str(self.folder / KEY)]
        command += [f"--join={address}" for address in others]
        command += ["--name", node.name, "--leash", "--json"]
        if trace is not None:
            command += ["--trace", str(trace)]
        with (self.folder / f"{node.name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.PIPE
            )  # its standard input ends with this process, and it does so, too
        self._processes[node.name] = process
        node.pid = process.pid
        assert process.stdout is not None
        said = process.stdout.readline()  # one line, when it has joined, or why it has not
        if not said or "error" in msgspec.json.decode(said):
            raise EnvironmentLacks(f"{node.name} did not start: {self._last_words(node)}")
        self._write()

    def _last_words(self, node: FleetNode) -> str:
        lines = (self.folder / f"{node.name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no reason was given"

    def look(self) -> list[FleetNode]:
        """Who has ended since the last time."""
        ended = []
        for node in self.nodes:
            process = self._processes.get(node.name)
            if node.pid is not None and process is not None and process.poll() is not None:
                node.pid = None
                ended.append(node)
        if ended:
            self._write()
        return ended

    def _write(self) -> None:
        with suppress(FileNotFoundError):  # somebody has removed the folder
            replace(self.folder / _NODES, msgspec.json.encode(self.nodes))

    def stop(self) -> None:
        """End all and wait for them."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.look()
        self._lock.close()


def nodes_of(folder: Path) -> list[FleetNode]:
    """The nodes that run from this folder."""
    if not is_held(folder, _LOCK):
        raise BadInput(f"no mesh runs from {folder}: start one with `unisono mesh up`")
    return msgspec.json.decode((folder / _NODES).read_bytes(), type=list[FleetNode])


def kill(folder: Path, name: str) -> FleetNode:
    """SIGKILL to a node of a mesh that runs from this folder."""
    nodes = {node.name: node for node in nodes_of(folder)}
    node = nodes.get(name)
    if node is None:
        raise BadInput(f"no node {name!r}; there are: {', '.join(nodes)}")
    if node.pid is None:
        raise BadInput(f"{name} does not run any more")
    try:
        os.kill(node.pid, signal.SIGKILL)
    except ProcessLookupError:
        raise BadInput(f"{name} does not run any more") from None
    return node


def _free_ports(host: str, count: int) -> list[int]:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
