"""What the thesis' large simulations share: runs on the columnar engine, settings, plots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from unisono.core.entropy import stream
from unisono.errors import EnvironmentLacks
from unisono.experiments.registry import MET, NOT_MET, Claim, Table

if TYPE_CHECKING:
    from unisono.sim.columnar.engine import Adaptive, Result
    from unisono.sim.columnar.models import Model

SEEDS, QUICK_SEEDS = 10, 2  # the thesis: at least 10 runs
POWER: Model = "power-0.901"
COMMON = (
    "the event service is modelled after SCRIBE over Pastry: messages between nodes take one hop "
    "per hexadecimal digit, trees are made of the routes to the root, routing tables hold random "
    "nodes; the manager of a topic lives on the root of its tree",
    "links are FIFO; delays are the thesis' Gaussians truncated at 1 ms; whether a link is fast or "
    "slow is fixed",
    "printed stamps, notified as they arrive (no buffer), as nothing else is said",
    "events are published at Poisson times, each by a random node",
    "power law of shape 0.901: topic k is drawn with probability proportional to k^-s, where s is "
    "such that 0.5 % of the topics (at least one) get 80 % of the draws",
)


def columnar_run(
    *,
    nodes: int,
    topics: int,
    seed: int,
    duration_s: float,
    publish: str,
    subscribe: Model = "all",
    held: int = 0,
    order: str = "popular-first",
    buffer: int | None = 0,
    exact: bool = False,
    adaptive: Adaptive | None = None,
    shuffle_at_s: float | None = None,
) -> Result:
    """One run at one event per second. Topic 0 is the most popular one.

    `publish`: a model, or "last", the lowest topic only. `order`: "popular-first", "popular-last"
    or "random". `shuffle_at_s`: from then on the topics' popularities are dealt out anew.
    """
    try:
        import numpy as np

        from unisono.sim.columnar import engine, models
    except ImportError as error:
        raise EnvironmentLacks(
            f"this experiment needs numpy and numba ({error}): pip install 'unisono[spark]'"
        ) from error
    ranking = list(range(topics))
    if order == "popular-last":
        ranking.reverse()
    elif order == "random":
        stream(seed, "topic order").shuffle(ranking)
    if publish == "last":
        chance = np.zeros(topics)
        chance[ranking[-1]] = 1.0
    else:
        chance = models.weights(publish, topics)
    times, topic, publisher = models.publications(nodes, chance, 1.0, duration_s, seed)
    if shuffle_at_s is not None:
        dealt = list(range(topics))
        stream(seed, "new popularity").shuffle(dealt)
        later = times >= round(shuffle_at_s * 1e6)
        topic[later] = np.array(dealt, np.int32)[topic[later]]
    return engine.run(
        engine.Plan(
            network=engine.pastry(nodes, topics, seed),
            subscriptions=models.subscriptions(nodes, topics, held or topics, subscribe, seed),
            publications=(times, topic, publisher),
            order=np.array(ranking, np.int32),
            seed=seed,
            exact=exact,
            buffer=buffer,
            adaptive=adaptive,
        )
    )


# Figures 3.13 and 3.14, and the cost of exact stamps: subscriptions held, by topic order.
# name -> model of publications and subscriptions, topic order
HELD_CASES: dict[str, tuple[Model, str]] = {
    "best": (POWER, "popular-first"),
    "worst": (POWER, "popular-last"),
    "uniform": ("uniform", "popular-first"),
}


def held_run(case: str, held: str, **rest: Any) -> Result:
    """A run in which every node holds so many subscriptions."""
    model, order = HELD_CASES[case]
    return columnar_run(held=int(held), publish=model, subscribe=model, order=order, **rest)


def claim(text: str, paper: str, measured: str, holds: bool) -> Claim:
    return Claim(text, paper, measured, MET if holds else NOT_MET)


# Figures 3.9 to 3.12: one sweep over the size of the event service.

SIZES = (10, 100, 1000, 10_000)
SIZE_TOPICS = 50
SIZE_S, SIZE_QUICK_S = 300, 30
MODELS = {"worst": "last", "uniform": "uniform", "power-law": POWER}
SIZE_MEASURES = ("latency_s", "ordering_s", "ens_s", "within_1_s", "entries")
SIZE_ASSUMED = (
    *COMMON,
    f"each run is {SIZE_S} s long instead of 30 min (quick: {SIZE_QUICK_S} s); 10 runs make 3,000 "
    "events",
    "sizes 10, 100, 1,000 and 10,000",
)


def size_settings(models: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{model}-{size}" for model in models for size in SIZES)


def size_simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    model, _, size = setting.rpartition("-")
    result = columnar_run(
        nodes=int(size),
        topics=SIZE_TOPICS,
        seed=seed,
        duration_s=SIZE_QUICK_S if quick else SIZE_S,
        publish=MODELS[model],
    )
    return {
        "latency_s": result.latency_us.mean() / 1e6,
        "ordering_s": result.ordering_us.mean() / 1e6,
        "ens_s": result.dissemination_us.mean() / 1e6,
        "within_1_s": (result.latency_us <= 1_000_000).mean(),
        "entries": (result.tables.stamp >= 0).sum(axis=1).mean(),
    }


def by_size(table: Table, model: str, measure: str) -> dict[int, float]:
    return {size: table[f"{model}-{size}"][f"{measure}_mean"] for size in SIZES}


def shown(values: Mapping[int, float], unit: str = " s") -> str:
    """As 10: 1.2 s, 100: 3.4 s."""
    return ", ".join(f"{at:,}: {value:.2f}{unit}" for at, value in values.items())


def size_plot(lines: Mapping[str, Mapping[int, float]], label: str, path: Path) -> None:
    from unisono.report.plots import curves

    points = {name: list(values.items()) for name, values in lines.items()}
    curves(points, "nodes of the event service", label, path, log_x=True)


# Figures 3.16 to 3.20: the adaptive order, event by event.

DYNAMIC_NODES, DYNAMIC_TOPICS, DYNAMIC_HELD = 10_000, 1000, 100


def parts_plot(table: Table, model: str, path: Path) -> None:
    """Ordering and dissemination apart."""
    lines = {
        "ordering": by_size(table, model, "ordering_s"),
        "event service": by_size(table, model, "ens_s"),
        "total": by_size(table, model, "latency_s"),
    }
    size_plot(lines, "latency (s)", path)


PER_POINT = 10  # events
LATE = 100  # events at the end of a run, when the order has adapted
DYNAMIC_S = 500
DYNAMIC_ASSUMED = (
    *COMMON,
    f"{DYNAMIC_S} s a run; quick: 1,000 nodes and 200 topics",
    "subscriptions are 100 distinct topics drawn by the power law (quick: 20)",
    "a coordinator tells all managers of a new order at once; a stamp under way is completed in "
    "its epoch; numbers start anew in each epoch; `swaps` are changes of the order",
    "`paper` counts events since the start; of all managers on a stamp's way for which the rule "
    "holds, the highest one changes places; one exchange at a time, requests meanwhile are dropped",
    "`window` counts the last 100 events: managers report each request to the coordinator, in a "
    "message of its own; it sorts all topics by count when the rule holds for any two, or when an "
    "event comes of a topic that stands below others without recent events, at most every 10 s; "
    "such an event waits for the change before it is numbered (`no-wait`: it does not)",
)


def series(name: str, duration_s: int = DYNAMIC_S) -> tuple[str, ...]:
    """Names of the measures of a curve: one per ten events."""
    return tuple(f"{name}_{point:03d}" for point in range(duration_s // PER_POINT))


DYNAMIC_MEASURES = (
    "swaps",
    "change_messages",
    "late_latency_s",
    "late_median_s",
    "late_popular_s",
    "late_firsts",
    "late_first_s",
    "late_known_s",
    "tagged",
    "late_bytes",
    "late_median_bytes",
    *series("latency_s"),
    *series("bytes"),
)


def dynamic_run(
    seed: int,
    quick: bool,
    order: str,
    adaptive: Adaptive | None,
    duration_s: int = DYNAMIC_S,
    shuffle_at_s: float | None = None,
) -> Result:
    return columnar_run(
        nodes=1000 if quick else DYNAMIC_NODES,
        topics=200 if quick else DYNAMIC_TOPICS,
        held=20 if quick else DYNAMIC_HELD,
        seed=seed,
        duration_s=duration_s,
        publish=POWER,
        subscribe=POWER,
        order=order,
        adaptive=adaptive,
        shuffle_at_s=shuffle_at_s,
    )


def dynamic_figures(result: Result) -> dict[str, float]:
    """The measures of a run: curves over its events, and means and medians of the last 100.

    `late_popular_s` is the mean over those on the topics that get 80 % of the publications,
    `late_first_s` over the `late_firsts` that are the first on their topic, `late_known_s` over the
    others.
    """
    latency = (result.latency_us / 1e6).tolist()
    stamp = result.stamp_bytes.tolist()
    top = popular_topics(result.tables.manager.size)
    every_topic = result.tables.event["topic"].tolist()
    topics = every_topic[-LATE:]
    on_popular = [took for took, topic in zip(latency[-LATE:], topics, strict=True) if topic < top]
    before = set(every_topic[:-LATE])
    firsts: list[float] = []
    known: list[float] = []
    for took, topic in zip(latency[-LATE:], topics, strict=True):
        (known if topic in before else firsts).append(took)
        before.add(topic)
    return {
        "swaps": result.swaps,
        "change_messages": int(result.tables.run[0]["change_messages"]),
        "late_latency_s": fmean(latency[-LATE:]),
        "late_median_s": median(latency[-LATE:]),
        "late_popular_s": fmean(on_popular or [0.0]),
        "late_firsts": len(firsts),
        "late_first_s": fmean(firsts or [0.0]),
        "late_known_s": fmean(known or [0.0]),
        "tagged": result.tagged_share,
        "late_bytes": fmean(stamp[-LATE:]),
        "late_median_bytes": median(stamp[-LATE:]),
        **bucketed("latency_s", latency, DYNAMIC_S),
        **bucketed("bytes", stamp, DYNAMIC_S),
    }


def popular_topics(topics: int) -> int:
    """How many get 80 % of the publications."""
    from unisono.sim.columnar.models import SHAPES, most_popular

    return most_popular(topics, SHAPES[POWER])


def bucketed(name: str, values: Sequence[float], duration_s: int) -> dict[str, float]:
    """The mean of every ten events in a row; the last ones stand in where events are missing."""
    return {
        measure: fmean(values[point * PER_POINT : (point + 1) * PER_POINT] or values[-PER_POINT:])
        for point, measure in enumerate(series(name, duration_s))
    }


def curve(
    table: Table, setting: str, name: str, duration_s: int = DYNAMIC_S
) -> list[tuple[float, float]]:
    """Points (event, mean) of a setting."""
    return [
        (PER_POINT * (point + 1), table[setting][f"{measure}_mean"])
        for point, measure in enumerate(series(name, duration_s))
    ]


def dynamic_plot(
    table: Table,
    settings: Sequence[str],
    name: str,
    label: str,
    path: Path,
    duration_s: int = DYNAMIC_S,
) -> None:
    from unisono.report.plots import curves

    lines = {setting: curve(table, setting, name, duration_s) for setting in settings}
    curves(lines, "event", label, path, log_y=True)


STATIC = "random-static"
KINDS = ("paper", "window")  # what the rule counts


def tuned_settings(values: Sequence[float]) -> tuple[str, ...]:
    """The static order, and the adaptive one for each value of a parameter, by both counts."""
    return (STATIC, *(f"{kind}-{value}" for kind in KINDS for value in values))


def tuned_simulate(parameter: str) -> Callable[[str, int, bool], Mapping[str, float]]:
    """Runs of `tuned_settings` of alpha or beta."""

    def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
        from unisono.sim.columnar.engine import Adaptive

        adaptive = None
        if setting != STATIC:
            kind, value = setting.split("-")
            rule = Adaptive(metric="paper" if kind == "paper" else "window")
            changed: dict[str, Any] = {parameter: float(value)}
            adaptive = replace(rule, **changed)
        return dynamic_figures(dynamic_run(seed, quick, "random", adaptive))

    return simulate


def swaps_claim(which: str, paper: float, swaps: float) -> Claim:
    text = f"{which}: {paper} swaps on average"
    return claim(
        text, f"{paper} (taken as: within a third)", f"{swaps:.1f}", abs(swaps / paper - 1) < 1 / 3
    )
