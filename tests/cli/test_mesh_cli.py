"""`unisono mesh`, `node --listen`, `pub` and `sub`: real processes on loopback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    assert seen["changes"][-1]["coordinators"] == ["n2", "n4"]
    assert main(["mesh", "kill", "n0", "--folder", folder]) == 2


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
