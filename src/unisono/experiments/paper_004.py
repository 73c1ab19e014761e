"""Paper 004, figures 10 and 11: clusters and path-diverse trees beside plain Scribe, while links or
processes crash.

Settings are named protocol/what crashes/nodes, upstreams, clusters: ours/links/n50/u1/c8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING

from unisono.errors import EnvironmentLacks
from unisono.experiments.lossy_group import claim, listed, mean
from unisono.experiments.registry import Claim, Experiment, Table

if TYPE_CHECKING:
    from unisono.sim.overlay import Plan

SEEDS, QUICK_SEEDS = 5, 2
DURATION_S, QUICK_S = 7200, 450
SIZES = (20, 50, 100)
LARGEST = 200  # for figure 10 with one upstream
MULTIHOMED = (20, 50, 100)
CLUSTERS = (4, 8, 16)
LATE_MS = 1000
MEASURES = (
    "success",
    "incomplete",
    "latency_ms",
    "median_ms",
    "jitter_ms",
    "late",
    "messages",
    "copies",
)
_COPIES = ("Publish", "Up", "Down", "Cast", "Fetched")
_BEAT_S, _SILENCE, _KEEP_S = 2, 3, 60
ASSUMED = (
    "ours: <p=2, k=1>; whoever misses something asks for it, trees feed each other in every "
    "cluster, roots that cannot reach each other unite, and a coordinator gives its place to a "
    "member that reaches more of the other clusters. paper: the same with the paper's rule "
    "alone: each tree is fed from its root, a child that got an event on the other tree only tells "
    "its parent, which fetches it and re-joins. scribe: every node its own cluster, one tree, no "
    "recovery but re-joining when the parent is silent",
    f"signs of life every {_BEAT_S} s, {_SILENCE} silent beats are suspicious and twice as many "
    f"the end, events are kept for {_KEEP_S} s",
    "'a mean of 5000 s between failures' is the time that one link or process is up; it is down "
    "for 10 to 1200 s, evenly; links have been crashing for 20 minutes when the first event is "
    "published. Crashes take place that leave the network connected and, as routes do not heal "
    "meanwhile, a chain of nodes from every node to the publisher: the paper's 'there will always "
    "be a correct path'",
    "links crash in the core and between systems: below that ReaSE's networks are trees, whose "
    "links cannot crash without cutting off",
    "delays are ours: 20 to 30 ms between systems, 2 to 4 in the core, up to 2 below",
    "processes come back empty after a crash and subscribe anew (the paper's do not come back); "
    "subscribers that are down, that came back less than 30 s ago or that crash within 10 s do not "
    "count; the publisher does not crash",
    "one event a second, from one node; all others subscribe; smaller sets of nodes are parts of "
    f"larger ones. Quick runs are of {QUICK_S} s, not two hours",
)


def setting_of(
    protocol: str, nodes: int, faults: str = "links", upstreams: int = 1, clusters: int = 8
) -> str:
    return f"{protocol}/{faults}/n{nodes}/u{upstreams}/c{clusters}"


def plan_of(setting: str, seed: int, duration_s: int) -> Plan:
    """The run that a setting stands for."""
    try:
        from unisono.ens.scribe.options import SECOND, Shape
        from unisono.sim.overlay import Plan
        from unisono.sim.topologies import Internet
    except ImportError as error:
        raise EnvironmentLacks(
            f"this experiment needs rustworkx ({error}): pip install 'unisono[spark]'"
        ) from error
    protocol, faults, *numbers = setting.split("/")
    nodes, upstreams, clusters = (int(number[1:]) for number in numbers)
    shape = partial(Shape, beat_us=_BEAT_S * SECOND, silence=_SILENCE, keep_us=_KEEP_S * SECOND)
    shapes = {
        "ours": shape(trees=2, backups=1),
        "paper": shape(trees=2, backups=1, recover="paper"),
        "scribe": shape(trees=1, backups=0, leaves=4, diverse=False, recover="none"),
    }
    return Plan(
        internet=Internet(seed=seed, upstreams=upstreams, systems=clusters),
        shape=shapes[protocol],
        seed=seed,
        nodes=nodes,
        own_clusters=protocol == "scribe",
        faults=faults,  # type: ignore[arg-type]  # checked by Plan
        duration_s=duration_s,
    )


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    plan = plan_of(setting, seed, QUICK_S if quick else DURATION_S)
    from unisono.sim.overlay import Trial

    result = Trial(plan).run()
    latency_ms = [latency / 1000 for latency in result.latency_us]
    return {
        "success": result.success,
        "incomplete": result.incomplete,
        "latency_ms": fmean(latency_ms),
        "median_ms": median(latency_ms),
        "jitter_ms": pstdev(latency_ms),
        "late": sum(latency > LATE_MS for latency in latency_ms) / len(latency_ms),
        "messages": result.sent.total() / result.published,
        "copies": sum(result.sent[kind] for kind in _COPIES) / result.published,
    }


def _all(
    protocol: str, sizes: Iterable[int], faults: str = "links", upstreams: int = 1
) -> list[str]:
    return [setting_of(protocol, nodes, faults, upstreams) for nodes in sizes]


def _means(table: Table, settings: Iterable[str], measured: str) -> list[float]:
    return [mean(table, setting, measured) for setting in settings]


def _worst(table: Table, settings: Iterable[str]) -> float:
    return min(table[setting]["success_min"] for setting in settings)


def _spread(values: list[float]) -> float:
    """How much the largest is above the smallest."""
    return max(values) / min(values) - 1


# Figure 10: latency, jitter and success against the number of nodes.

_GROWING = (*SIZES, LARGEST)
_ours, _paper, _scribe = (_all(protocol, _GROWING) for protocol in ("ours", "paper", "scribe"))
_ours_2, _paper_2 = (_all(protocol, MULTIHOMED, upstreams=2) for protocol in ("ours", "paper"))
_by_clusters = {
    nodes: [setting_of("ours", nodes, clusters=clusters) for clusters in CLUSTERS]
    for nodes in SIZES[1:]
}
_FOR_10 = dict.fromkeys(
    (
        *_ours,
        *_paper,
        *_scribe,
        *_ours_2,
        *_paper_2,
        *(s for line in _by_clusters.values() for s in line),
    )
)


def _claims_success(table: Table) -> list[Claim]:
    ours, paper, scribe = (_means(table, s, "success") for s in (_ours, _paper, _scribe))
    missing_1, missing_2 = (_means(table, s, "incomplete") for s in (_paper, _paper_2))
    paper_2 = _means(table, _paper_2, "success")
    for_sizes = f"for {listed(_GROWING, 'd')} nodes"
    every = [*_ours, *(setting for line in _by_clusters.values() for setting in line)]
    clusters_text = "; ".join(
        f"{listed(_means(table, line, 'success'), '.4f')} with {nodes} nodes in "
        f"{listed(CLUSTERS, 'd')}"
        for nodes, line in _by_clusters.items()
    )
    return [
        claim(
            "ours keeps success at 0.95 or more with one upstream, whatever the size and the "
            "number of clusters",
            "better than Scribe; about 5 % of the messages miss a subset",
            f"{listed(ours, '.4f')} {for_sizes} in 8 clusters, {clusters_text}; worst run "
            f"{_worst(table, every):.4f}",
            _worst(table, every) >= 0.95,
        ),
        claim(
            "Scribe's success falls with the number of nodes",
            "low, and falls with size (judged: lower with the most nodes than with the fewest)",
            f"{listed(scribe, '.4f')} {for_sizes}",
            scribe[-1] < scribe[0],
        ),
        claim(
            "Scribe's success is below that of ours and of the paper's rule at every size",
            "below",
            f"scribe {listed(scribe, '.4f')}, paper {listed(paper, '.4f')}, "
            f"ours {listed(ours, '.4f')}",
            all(s < min(p, o) for s, p, o in zip(scribe, paper, ours, strict=True)),
        ),
        claim(
            "ours does not depend on the number of nodes",
            "independent (judged: within 0.01), also under the paper's rule",
            f"ours {listed(ours, '.4f')}, paper {listed(paper, '.4f')} {for_sizes}",
            all(max(values) - min(values) <= 0.01 for values in (ours, paper)),
        ),
        claim(
            "two upstreams for every system: ours brings everything to everyone",
            "1",
            f"worst run {_worst(table, _ours_2):.6f}",
            _worst(table, _ours_2) == 1.0,
        ),
        claim(
            "one upstream, the paper's rule alone: some messages miss a subset of the subscribers",
            "about 5 % of the messages (judged: 1 to 10 % on average)",
            f"{listed(missing_1, '.2%')} {for_sizes}, success {listed(paper, '.4f')}",
            0.01 <= fmean(missing_1) <= 0.1,
        ),
        claim(
            "two upstreams, the paper's rule alone: the residual disappears",
            "success 1",
            f"{listed(missing_2, '.2%')} of the messages miss somebody for "
            f"{listed(MULTIHOMED, 'd')} nodes, success {listed(paper_2, '.4f')}",
            _worst(table, _paper_2) == 1.0,
        ),
    ]


def _claims_latency(table: Table) -> list[Claim]:
    by_nodes = {
        name: _means(table, s, "latency_ms") for name, s in (("ours", _ours), ("paper", _paper))
    }
    medians = _means(table, _ours, "median_ms")
    by_clusters = {n: _means(table, line, "median_ms") for n, line in _by_clusters.items()}
    scribe = _means(table, _scribe, "latency_ms")
    text = "; ".join(
        f"{listed(found, '.0f')} ms with {nodes} nodes" for nodes, found in by_clusters.items()
    )
    nodes_text = (
        f"median {listed(medians, '.0f')} ms, mean "
        + ", ".join(f"{name} {listed(values, '.0f')}" for name, values in by_nodes.items())
        + f" for {listed(_GROWING, 'd')} nodes in 8 clusters; Scribe's mean {listed(scribe, '.0f')}"
    )
    clusters_effect = min(found[-1] / found[0] - 1 for found in by_clusters.values())
    return [
        claim(
            "latency hardly changes with the number of nodes, at a fixed number of clusters",
            "almost constant (judged: the median within 20 %, over ten times as many nodes)",
            nodes_text,
            _spread(medians) <= 0.2,
        ),
        claim(
            "latency grows with the number of clusters",
            "affected only by the number of groups (judged: the median, by more than with nodes)",
            f"{text}, for {listed(CLUSTERS, 'd')} clusters",
            all(found[0] < found[-1] for found in by_clusters.values())
            and clusters_effect > _spread(medians),
        ),
    ]


def _claims_jitter(table: Table) -> list[Claim]:
    ours, paper, scribe = (_means(table, s, "jitter_ms") for s in (_ours, _paper, _scribe))
    text = (
        f"scribe {listed(scribe, '.0f')}, paper {listed(paper, '.0f')}, ours {listed(ours, '.0f')} "
        f"ms for {listed(_GROWING, 'd')} nodes; later than a second come "
        f"{listed(_means(table, _ours, 'late'), '.2%')} of ours, which Scribe would lose"
    )
    return [
        claim(
            "with few nodes Scribe has the smaller standard deviation",
            "smaller",
            text,
            scribe[0] < min(ours[0], paper[0]),
        ),
        claim(
            "Scribe's standard deviation grows with the number of nodes",
            "grows",
            text,
            scribe[-1] > scribe[0],
        ),
        claim(
            "that of ours grows more slowly",
            "a lower rate of increase (judged: relative growth, ours and the paper's rule)",
            text,
            all(each[-1] / each[0] < scribe[-1] / scribe[0] for each in (ours, paper)),
        ),
    ]


def _claims_10(table: Table) -> list[Claim]:
    return [*_claims_success(table), *_claims_latency(table), *_claims_jitter(table)]


# Figure 11: processes crash instead of links.

_crashing = {p: _all(p, SIZES, "processes") for p in ("ours", "paper", "scribe")}
_beside = {p: _all(p, SIZES) for p in ("ours", "paper")}
_FOR_11 = dict.fromkeys(
    s for found in (_crashing, _beside) for line in found.values() for s in line
)


def _claims_11(table: Table) -> list[Claim]:
    links, crashes = (_means(table, found["ours"], "latency_ms") for found in (_beside, _crashing))
    ratios = [c / b for b, c in zip(links, crashes, strict=True)]
    success = {p: _means(table, line, "success") for p, line in _crashing.items()}
    return [
        claim(
            "process crashes only: latency is comparable with that under link crashes",
            "comparable (judged: mean within a factor of two)",
            f"{listed(crashes, '.0f')} ms, under link crashes {listed(links, '.0f')} for "
            f"{listed(SIZES, 'd')} nodes",
            all(0.5 <= ratio <= 2 for ratio in ratios),
        ),
        claim(
            "process crashes only: ours brings everything to everyone",
            "1",
            f"worst run {_worst(table, _crashing['ours']):.6f}",
            _worst(table, _crashing["ours"]) == 1.0,
        ),
        claim(
            "process crashes only, the paper's rule alone: everything comes to everyone",
            "1",
            f"paper {listed(success['paper'], '.6f')}, worst run "
            f"{_worst(table, _crashing['paper']):.6f}; Scribe {listed(success['scribe'], '.4f')} "
            f"for {listed(SIZES, 'd')} nodes",
            _worst(table, _crashing["paper"]) == 1.0,
        ),
    ]


def _plot(lines: Mapping[str, list[str]], sizes: tuple[int, ...], table: Table, path: Path) -> None:
    """Success in the file that was asked for, latency and jitter beside it."""
    from unisono.report.plots import curves

    for measured, label, stem in (
        ("success", "success", ""),
        ("latency_ms", "mean latency (ms)", "-latency"),
        ("jitter_ms", "standard deviation of the latency (ms)", "-jitter"),
    ):
        drawn = {
            name: list(zip(sizes, _means(table, settings, measured), strict=False))
            for name, settings in lines.items()
        }
        curves(drawn, "nodes", label, path.with_stem(path.stem + stem))


_LINES_10 = {
    "Scribe": _scribe,
    "the paper's rule": _paper,
    "ours": _ours,
    "the paper's rule, two upstreams": _paper_2,
    "ours, two upstreams": _ours_2,
}
_LINES_11 = {
    "Scribe, processes": _crashing["scribe"],
    "the paper's rule, processes": _crashing["paper"],
    "ours, processes": _crashing["ours"],
    "ours, links": _beside["ours"],
}
_figure = partial(
    Experiment,
    assumed=ASSUMED,
    measures=MEASURES,
    seeds=SEEDS,
    quick_seeds=QUICK_SEEDS,
    simulate=simulate,
)
EXPERIMENTS = (
    _figure(
        id="overlay-10",
        title="Latency, jitter and success while links crash",
        source="paper 004, figure 10 and section 4.2",
        settings=tuple(_FOR_10),
        claims=_claims_10,
        plot=partial(_plot, _LINES_10, _GROWING),
    ),
    _figure(
        id="overlay-11",
        title="Latency and success while processes crash",
        source="paper 004, figure 11",
        settings=tuple(_FOR_11),
        claims=_claims_11,
        plot=partial(_plot, _LINES_11, SIZES),
    ),
)
