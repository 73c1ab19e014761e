"""The benchmark of coding measures real work, beside whatever peers are there, and judges it."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

from unisono.bench import coding, peers
from unisono.bench.peers import Peer
from unisono.cli.main import main
from unisono.qos.coding.galois import Bytes

Times = dict[str, dict[str, list[float]]]


def echo(packets: Bytes, coded: int) -> Peer:
    """A peer that gives back what it was given."""
    whole = packets.tobytes()
    return Peer("1.0", lambda: whole, lambda: whole, bytes)


def forgetful(packets: Bytes, coded: int) -> Peer:
    return Peer("1.0", bytes, bytes, bytes)


def missing(packets: Bytes, coded: int) -> Peer:
    raise ImportError("no such package")


def broken(packets: Bytes, coded: int) -> Peer:
    def decode() -> bytes:
        raise RuntimeError("Backend instance not found")

    return Peer("1.0", bytes, decode, bytes)


def times(ours: float, path: float = 150.0, **others: float) -> Times:
    figures = {"ours": [ours], "memcpy": [1.0]}
    figures |= {name.replace("_", "-"): [taken] for name, taken in others.items()}
    return {"encode": figures, "decode": figures, "path": {"ours": [path]}}


def judged(found: dict[str, Any]) -> dict[str, tuple[bool, bool | None]]:
    return {
        f"{target['work']} {target['figure']}": (target["applied"], target["met"])
        for target in found["judged"]
    }


def test_every_call_does_its_work() -> None:
    packets = coding._packets()
    there, absent = peers.find(packets, coding.CODED)
    assert there.keys() | absent.keys() == peers.MAKERS.keys()
    assert not there.keys() & absent.keys() and all(absent.values())
    encoders, decoders = coding._encoders(packets, there), coding._decoders(packets, there)
    assert encoders.keys() == {"ours", "ours-drawn", "memcpy"} | there.keys()
    assert decoders.keys() == {"ours", "memcpy"} | there.keys()
    for call in (*encoders.values(), *decoders.values()):
        call()
    assert (decoders["ours"]() == packets).all()
    assert len(coding._path()()) == coding.EVENT_BYTES


def test_peers_give_back_the_packets_again_and_again() -> None:
    """What is timed later is what was checked, whatever was called in between."""
    packets = coding._packets()[:, :128].copy()
    there, _ = peers.find(packets, coding.CODED)
    for name, peer in there.items():
        for _ in range(2):
            peer.encode()
            assert peer.restored(peer.decode()) == packets.tobytes(), name


def test_a_peer_that_does_not_work_is_absent_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    makers = {"echo": echo, "forgetful": forgetful, "missing": missing, "broken": broken}
    monkeypatch.setattr(peers, "MAKERS", makers)
    there, absent = peers.find(np.ones((3, 5), np.uint8), 1)
    assert there.keys() == {"echo"}
    assert absent == {
        "forgetful": "gives back other packets",
        "missing": "ImportError: no such package",
        "broken": "RuntimeError: Backend instance not found",
    }


def test_packages_that_are_not_installed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pyeclib", "pyeclib.ec_iface", "zfec", "galois", "raptorq"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    monkeypatch.setattr("importlib.metadata.files", lambda package: [])
    there, absent = peers.find(coding._packets(), coding.CODED)
    assert not there and absent.keys() == peers.MAKERS.keys()
    assert "no ISA-L on this system" in absent["isal"]
    assert "comes without ISA-L" in absent["isal-bundled"]
    assert all(name in absent[name] for name in ("zfec", "galois", "raptorq"))


def test_ratios_are_to_each_peer_and_to_the_fastest_isal() -> None:
    found = times(2.0, isal=3.0, isal_pyeclib=50.0, zfec=70.0, galois=500.0)
    found["encode"]["ours-drawn"] = [1.0]
    encode = coding.summarise(found)["encode"]
    assert encode == {
        "us": {"ours": 2.0, "memcpy": 1.0, "isal": 3.0, "isal-pyeclib": 50.0, "zfec": 70.0,
               "galois": 500.0, "ours-drawn": 1.0},
        "ratio_to_fastest_isal": 1.5,
        "ratio_to_zfec": 35.0,
        "ratio_to_memcpy": 0.5,
        "ratio_to_isal": 1.5,
        "ratio_to_isal_pyeclib": 25.0,
        "ratio_to_galois": 250.0,
        "drawn_ratio_to_fastest_isal": 3.0,
    }  # fmt: skip


def test_figures_are_medians() -> None:
    found = times(2.0)
    found["encode"] = {"ours": [9.0, 2.0, 1.0], "memcpy": [4.0, 1.0, 5.0]}
    assert coding.summarise(found)["encode"]["ratio_to_memcpy"] == 2.0


def test_targets_are_judged() -> None:
    good = coding.summarise(times(2.0, isal=3.0, zfec=60.0))
    assert good["met"] and set(judged(good).values()) == {(True, True)}
    assert good["path"]["us"] == good["event_path_us"] == 150.0


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (
            times(4.0, isal=3.0, isal_pyeclib=50.0, zfec=200.0),
            {"encode ratio_to_fastest_isal", "decode ratio_to_fastest_isal"},
        ),
        (times(2.0, isal=3.0, zfec=59.0), {"encode ratio_to_zfec"}),
        (times(2.0, isal=3.0, zfec=60.0, path=201.0), {"path us"}),
    ],
)
def test_each_target_can_be_missed(found: Times, missed: set[str]) -> None:
    summary = coding.summarise(found)
    assert not summary["met"]
    assert {name for name, (_, met) in judged(summary).items() if not met} == missed


def test_a_target_applies_only_if_its_peer_was_measured() -> None:
    alone = coding.summarise(times(2.0, raptorq=1.0))
    assert alone["met"] and alone["encode"]["ratio_to_raptorq"] == 0.5
    assert alone["encode"]["ratio_to_fastest_isal"] is None
    assert alone["encode"]["ratio_to_zfec"] is None
    applied = {name for name, (applied, met) in judged(alone).items() if applied}
    assert applied == {"path us"}
    assert all(met is None for applied, met in judged(alone).values() if not applied)

    with_zfec = coding.summarise(times(2.0, zfec=1.0))
    assert judged(with_zfec)["encode ratio_to_zfec"] == (True, False)
    assert judged(with_zfec)["decode ratio_to_fastest_isal"] == (False, None)


def test_a_slow_call_is_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = [0.0], [0]

    def slow() -> None:
        clock[0] += 0.02
        made[0] += 1

    monkeypatch.setattr("time.process_time", lambda: clock[0])
    assert coding._best_us(slow) == pytest.approx(20_000)
    assert made[0] == 2 + 2 * coding._ROUNDS


def test_the_command_tells_peers_and_absent_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "MAKERS", {"isal": echo, "zfec": missing})
    monkeypatch.setattr(coding, "_best_us", lambda call: 1.0)
    assert main(["bench", "coding", "--runs", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["machine"]["cores"] >= 1
    figures = told["coding"]
    assert figures["peers"] == {"isal": "1.0"}
    assert figures["absent"] == {"zfec": "ImportError: no such package"}
    assert told["encode"] == figures["encode"] and told["decode"] == figures["decode"]
    assert figures["decode"]["ratio_to_fastest_isal"] == 1.0
    assert judged(figures)["encode ratio_to_zfec"] == (False, None)

    monkeypatch.setattr(coding, "TARGETS", (coding.Target("encode", "ratio_to_zfec", 30.0),))
    assert main(["bench", "coding", "--runs", "1"]) == 0
    assert "not judged, the peer is absent" in capsys.readouterr().out
