"""The benchmark of coding measures real work and judges it."""

from __future__ import annotations

from unisono.bench import coding


def test_every_call_does_its_work() -> None:
    for calls in (coding._encoders(), coding._decoders()):
        assert calls.keys() >= {"ours", "memcpy"}
        for call in calls.values():
            call()
    assert len(coding._path()()) == coding.EVENT_BYTES  # type: ignore[arg-type]


def test_targets_are_judged() -> None:
    def found(ours: float, isal: float, path: float) -> dict[str, dict[str, list[float]]]:
        times = {"ours": [ours], "memcpy": [1.0], "isal": [isal], "isal-pyeclib": [50.0]}
        return {"encode": times, "decode": times, "path": {"ours": [path]}}

    good = coding.summarise(found(2.0, 3.0, 150.0))
    assert good["met"] and good["encode"]["ratio_to_fastest_isal"] == 1.5
    assert good["decode"]["ratio_to_memcpy"] == 0.5
    assert not coding.summarise(found(4.0, 3.0, 150.0))["met"]
    assert not coding.summarise(found(2.0, 3.0, 201.0))["met"]
