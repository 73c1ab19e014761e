"""The list of nodes that a folder holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from unisono.errors import BadInput
from unisono.net.fleet import Fleet, FleetNode, kill, nodes_of


def test_the_list_of_an_earlier_mesh_is_not_taken_for_this_one(tmp_path: Path) -> None:
    """Its process ids may be those of somebody else by now."""
    old = [FleetNode("n0", "127.0.0.1:1", "c0", 1), FleetNode("n7", "127.0.0.1:2", "c0", 1)]
    (tmp_path / "nodes.json").write_bytes(msgspec.json.encode(old))
    fleet = Fleet(tmp_path, 1, 1, 0, "127.0.0.1")
    assert [(node.name, node.pid) for node in nodes_of(tmp_path)] == [("n0", None)]
    with pytest.raises(BadInput, match="does not run"):
        kill(tmp_path, "n0")
    fleet.stop()


def test_who_has_just_ended_is_not_there_to_kill(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1, 1, 0, "127.0.0.1")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    fleet.nodes[0].pid = ended.pid
    fleet.look()
    with pytest.raises(BadInput, match="does not run"):
        kill(tmp_path, "n0")
    fleet.stop()
