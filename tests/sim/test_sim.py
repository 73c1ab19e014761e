"""The simulator: deterministic, with the papers' delays, and faults that do what they say."""

from __future__ import annotations

from pathlib import Path
from random import Random
from statistics import fmean, stdev

import msgspec
import pytest

from unisono.core.entropy import stream
from unisono.core.events import EVERYONE, Delivery, Status, inbox
from unisono.errors import BadInput, Unsupported
from unisono.qos.total_order.manager import TopicManager
from unisono.qos.total_order.messages import ToTopic
from unisono.sim.channels import Links, Wan
from unisono.sim.check import DeadlineCheck
from unisono.sim.faults import Faults, fault_layers
from unisono.sim.many import run_totals
from unisono.sim.run import run_scenario
from unisono.sim.scenario import Scenario, Subscribers, check_scenario, load_scenario
from unisono.sim.service import TreeService
from unisono.sim.weather import Weather

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def scenario(**changes: object) -> Scenario:
    return msgspec.structs.replace(load_scenario(SCENARIOS / "two-topics.toml"), **changes)


def test_a_run_is_a_function_of_scenario_and_seed() -> None:
    one, again, other = (run_scenario(scenario(), seed) for seed in (7, 7, 8))
    assert one.trace_sha256 == again.trace_sha256
    assert one.recorder.tables == again.recorder.tables
    assert one.trace_sha256 != other.trace_sha256


def test_wan_delays_have_the_papers_figures() -> None:
    wan = Wan()
    links = Links(wan, 1, stream(1, "delays"))
    pairs = [(f"a{i}", f"b{i}") for i in range(4000)]
    slow = [links.is_slow(*pair) for pair in pairs]
    assert 0.18 < fmean(slow) < 0.22
    assert all(links.is_slow(b, a) == links.is_slow(a, b) for a, b in pairs[:100])
    delays = {kind: [] for kind in (True, False)}  # type: dict[bool, list[float]]
    for pair, kind in zip(pairs, slow, strict=True):
        delays[kind].append(links.arrival_us(*pair, now=0) / 1000)
    assert min(delays[True] + delays[False]) >= wan.minimum_ms
    # A Gaussian truncated at 1 ms has a slightly higher mean and lower deviation than the full one.
    assert 20 < fmean(delays[False]) < 23 and 9.5 < stdev(delays[False]) < 11
    assert 235 < fmean(delays[True]) < 265 and 110 < stdev(delays[True]) < 130


def test_fifo_links_do_not_reorder() -> None:
    links = Links(Wan(), 3, Random(3))
    arrivals = [links.arrival_us("a", "b", now) for now in range(0, 100_000, 100)]
    assert arrivals == sorted(set(arrivals))
    free = Links(Wan(fifo=False), 3, Random(3))
    assert sorted(a := [free.arrival_us("a", "b", n) for n in range(0, 100_000, 100)]) != a


def test_the_tree_reaches_subscribers_only_once_each() -> None:
    names = [f"n{i:02d}" for i in range(30)]
    agenda: list[tuple[int, object]] = []
    reached: list[tuple[str, str]] = []
    links = Links(Wan(), 5, Random(5))
    service = TreeService(
        names,
        links,
        5,
        lambda at, action: agenda.append((at, action)),
        lambda node, topic, frame, now: reached.append((node, topic)),
        Weather(),
    )
    wanted = ["n03", "n07", "n21"]
    for node in wanted:
        service.subscribe(node, "t")
    service.subscribe("n01", inbox("n01"))
    service.subscribe("n02", EVERYONE)
    service.publish("n00", "t", b"", 0)
    service.publish("n00", inbox("n01"), b"", 0)
    service.publish("n00", inbox("gone"), b"", 0)
    service.publish("n00", EVERYONE, b"", 0)
    while agenda:
        at, action = agenda.pop(0)
        action(at)  # type: ignore[operator]
    events = sorted(node for node, topic in reached if topic == "t")
    assert events == wanted
    assert (inbox("n01"), EVERYONE) == tuple(
        topic for node, topic in sorted(reached) if topic != "t"
    )
    service.unsubscribe("n07", "t")
    reached.clear()
    service.publish("n00", "t", b"", 0)
    while agenda:
        at, action = agenda.pop(0)
        action(at)  # type: ignore[operator]
    assert sorted(node for node, _ in reached) == ["n03", "n21"]


@pytest.mark.parametrize("fault", ["loss", "duplicate", "delay", "reorder", "corrupt"])
def test_faults_happen_as_often_as_asked_and_are_recorded(fault: str) -> None:
    faults = msgspec.convert({fault: 0.3}, Faults)
    (layer,) = fault_layers(faults, "n", 1)
    harmed = 0
    for _ in range(2000):
        effects = list(layer.publish("t", b"frame", 0))
        harmed += any(type(effect).__name__ == "Record" for effect in effects)
    assert 500 < harmed < 700


def test_faults_spare_what_they_are_told_to_spare() -> None:
    (layer,) = fault_layers(Faults(loss=1.0, only="events"), "n", 1)  # limits are for files
    assert [type(e).__name__ for e in layer.publish(inbox("m"), b"", 0)] == ["Transmit"]
    assert [type(e).__name__ for e in layer.publish("t", b"", 0)] == ["Record"]
    (layer,) = fault_layers(Faults(loss=1.0, only="messages"), "n", 1)
    assert [type(e).__name__ for e in layer.publish("t", b"", 0)] == ["Transmit"]


def test_lost_events_are_skipped_and_said_so_while_the_order_holds() -> None:
    lossy = scenario(faults=Faults(loss=0.1, only="events"), hold_s=2.0)
    outcomes = [run_scenario(lossy, seed) for seed in range(30)]
    assert all(outcome.verdict == "valid" for outcome in outcomes)
    assert sum(outcome.checks["losses"].violations for outcome in outcomes) > 0
    assert sum(outcome.skipped for outcome in outcomes) > 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nodes = 3\nnodez = 4", "nodez"),
        ("topics = 'two'", "topics"),
        ("nodes = 3", "cannot hold"),
        ("[publishers]\nrate_per_s = 0", "rate_per_s"),
        ("[publishers]\nrate_per_s = nan", "rate_per_s"),
        ("duration_s = inf", "duration_s"),
        ("hold_s = -1", "hold_s"),
        ("name = '../../evil'", "name"),
        ("[wan]\nminimum_ms = 1000", "below minimum_ms"),
        ("[wan]\nfast_sd_ms = -1", "fast_sd_ms"),
        ("[members]\nleaves = 50", "only 13 nodes"),
        ("order = 'none'\nreplicas = 3", "means nothing"),
        ("[faults]\nloss = 1.0", "loss"),
        ("[faults]\nloss = 0.1", "needs hold_s"),
        ("[chaos]\ncrashes = 1", "needs replicas"),
        ("[chaos]\npartitions = 1", "needs hold_s"),
        ("nodes = 7\nreplicas = 3\n[chaos]\ncrashes = 1", "add nodes"),
        ("[chaos]\npublisher_crashes = 9\n[faults]\nonly = 'messages'", "hold_s|more than"),
        ("[adapt]\nbeta = 2.0", "beta"),
        ("[wan]\nslow_shore = 1", "slow_shore"),
        ("buffer = -1", "below 0"),
        ("order = 'none'\nbuffer = 3", "means nothing|mean nothing"),
        ("[subscribers]\npattern = 'xyz'", "nobody publishes"),
        ("[faults]\nduplicate = 7", "duplicate"),
        ("[subscribers]\nleast = 1\nmost = 1\nwhere = 'kind in'", "bad.toml: .* at position 7"),
        ("[delivery]\nfan_out = 30", "only 19 others"),
        ("[delivery]\nredundancy = -1", "redundancy"),
        ("[loss]\nrate = 1.5", "rate"),
        ("[loss]\nrate = 0.9\nburst = 1", "burst"),
        ("[loss]\nburst = 0.5", "burst"),
        ("[loss]\nrate = 0.1", "needs hold_s"),
        ("deadline_ms = 0", "deadline_ms"),
        ("this is not toml", "Expected"),
    ],
)
def test_bad_scenarios_are_refused_with_the_reason(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=why):
        load_scenario(path)


def test_all_scenarios_load() -> None:
    for path in SCENARIOS.glob("**/*.toml"):
        load_scenario(path)


@pytest.mark.parametrize(
    ("took_us", "status", "untrue"),
    [
        (5000, Status.IN_ORDER, False),
        (5001, Status.IN_ORDER, True),
        (5001, Status.LATE, False),
        (5000, Status.LATE, True),
        (9000, Status.OUT_OF_ORDER, False),
    ],
)
def test_what_is_late_and_does_not_say_so_is_seen(
    took_us: int, status: Status, untrue: bool
) -> None:
    check = DeadlineCheck()
    check.deadline_us = 5000
    delivery = Delivery(
        topic="t", payload=b"", status=status, id="e", publisher="p", position=0,
        published_us=100, delivered_us=100 + took_us, stamp=None,
    )  # fmt: skip
    check.delivered("s", delivery, 100)
    assert check.violations == untrue


def test_events_lost_without_a_time_to_live_are_refused() -> None:
    bad = scenario(faults=Faults(loss=0.1, only="events"))
    with pytest.raises(Unsupported, match="wait"):
        check_scenario(bad)
    check_scenario(msgspec.structs.replace(bad, buffer=0))
    check_scenario(scenario(subscribers=Subscribers(count=2, least=1, most=2)))


def test_a_seed_that_breaks_an_invariant_counts_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: TopicManager, message: ToTopic) -> None:
        raise AssertionError("two managers")

    monkeypatch.setattr(TopicManager, "request_stamp", broken)
    total = run_totals(scenario(), range(3, 5))
    assert total.invalid == 2
    assert [failure["seed"] for failure in total.failures] == [3, 4]
    assert total.checks["invariant"]["witness"] == {"seed": 3, "error": "two managers"}
