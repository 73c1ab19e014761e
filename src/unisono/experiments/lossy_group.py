"""What the experiments on coding and gossip share: a group of 40 nodes on the columnar engine.

A setting is a line of words: the gossip, then `name=value` for what differs from the paper's common
setting, for example `push f=2 a=2 plr=0.02`. The names are those of `NAMES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unisono.core.entropy import digest, stream
from unisono.errors import EnvironmentLacks
from unisono.experiments.registry import MET, NOT_MET, Claim, Experiment, Table
from unisono.qos.reliable.options import Reliability

if TYPE_CHECKING:
    from unisono.sim.columnar.delivery import Result

Claims = Callable[[Table], list[Claim]]

SEEDS, QUICK_SEEDS = 3, 1
EVENTS, QUICK_EVENTS = 1000, 150
NODES, PACKETS = 40, 16
NEARLY = 0.999
CHANGE_EVENT = 250  # conditions change with this event, where they do
TIMES_S = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0)
NAMES = {
    "f": "fan-out",
    "fan_in": "fan-in",
    "a": "redundant packets that the publisher sends along",
    "spare": "redundant packets that gossiping nodes send along",
    "pushed": "redundant packets that are pushed, and nothing else",
    "rd": "1: redundant packets are duplicates, not combinations",
    "ask": "1: who lacks packets asks, who has some reminds others (ours, not in the papers)",
    "plr": "packets lost",
    "abl": "mean length of a burst",
    "then": "packets lost from the 250th event on",
    "period": "seconds between rounds",
    "at": "root: the publisher is the root of the tree; all: any node publishes",
    "inner": "recode: inner nodes of the tree code anew",
    "tree": "scribe, or DEGREExDEPTH of a complete tree",
    "events": "how many",
}
MEASURES = (
    "success",
    "events_complete",  # that every subscriber got
    "loss_sd",  # over events, of the share of subscribers that missed it
    "latency_ms",
    "latency_sd_ms",
    "latency_max_ms",
    "overhead",
    "retransmitted",  # packets by gossip, per event
    "runs_1",  # of all runs of consecutive lost events, those of one event
    "runs_2",
    "runs_longer",
    "run_longest",
    "success_before",  # the change of conditions
    "success_after",
    *(f"within_{time * 1000:g}_ms" for time in TIMES_S),
)
COMMON = (
    "the tree is that of SCRIBE over Pastry for 40 nodes: the routes to the root, as in "
    "sim/columnar/overlay.py; inner nodes forward copies, they do not code anew",
    "every link, also between gossiping nodes, is a Gilbert-Elliott channel of its own; each "
    "transmission begins in its steady state",
    "a coded packet takes 5 ms to make, one after the other; decoding an event takes 10 ms if "
    "coded packets are needed; plain packets take no time",
    "without coding who lacks packets asks for these; with coding for as many combinations; nodes "
    "gossip once they have the whole event, as printed",
    "full success is read as 99.9 % of all notifications: that none of a thousand events fails is "
    "a matter of how long one looks",
    "partners are random subscribers, rounds begin at random times",
)


def options_of(words: Mapping[str, str], gossip: str) -> Reliability:
    def number(name: str, default: int) -> int:
        return int(words.get(name, default))

    kind: Any = gossip
    return Reliability(
        redundancy=number("a", 0),
        coding=not number("rd", 0) and (number("a", 0) + number("spare", 0) > 0),
        gossip=kind,
        fan_out=number("f", 2),
        fan_in=number("fan_in", 1),
        pushed=int(words["pushed"]) if "pushed" in words else None,
        spare=number("spare", 0),
        period_s=float(words.get("period", 1.5)),
        ask=bool(number("ask", 0)),
        remind=8 * number("ask", 0),
        keep_s=20,
    )


def simulator(common: Mapping[str, str]) -> Callable[[str, int, bool], Mapping[str, float]]:
    """How a paper's settings are simulated. `common`: what its text says once."""

    def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
        gossip, _, rest = setting.partition(" ")
        words = {**common, **dict(word.split("=", 1) for word in rest.split())}
        assert words.keys() <= NAMES.keys(), setting
        events = int(words.get("events", EVENTS))
        if quick:
            events = 2 * CHANGE_EVENT if "then" in words else events * QUICK_EVENTS // EVENTS
        return measure(group_run(gossip, words, events, seed))

    return simulate


def group_run(gossip: str, words: Mapping[str, str], events: int, seed: int) -> Result:
    """One run; latencies are those of the nodes other than a publisher at the root."""
    try:
        import numpy as np

        from unisono.sim.columnar import delivery, overlay
    except ImportError as error:
        raise EnvironmentLacks(
            f"this experiment needs numpy and numba ({error}): pip install 'unisono[spark]'"
        ) from error
    from unisono.sim.losses import Later, Loss

    if "x" in words.get("tree", "scribe"):
        degree, depth = map(int, words["tree"].split("x"))
        parents, root = delivery.balanced_parents(degree, depth), 0
    else:
        ids = overlay.node_ids(NODES, seed)
        root = overlay.nearest(ids, digest(seed, "topic"))
        parents = overlay.routed_parents(ids, root)
    rng = stream(seed, "publishers")
    at_root = words.get("at", "all") == "root"
    publishers = [root if at_root else rng.randrange(parents.size) for _ in range(events)]
    rate, burst = float(words["plr"]), float(words.get("abl", 2))
    later: tuple[Later, ...] = ()
    if "then" in words:
        later = (Later(at_s=CHANGE_EVENT + 0.5, rate=float(words["then"]), burst=burst),)
    inner: Any = words.get("inner", "copy")
    plan = delivery.Plan(
        parents=parents,
        published_us=np.arange(1, events + 1) * 1_000_000,
        publishers=np.array(publishers, np.int32),
        subscribes=np.ones(parents.size, np.bool_),
        packets=PACKETS,
        options=options_of(words, gossip),
        loss=Loss(rate=rate, burst=burst, later=later),
        costs=delivery.PAPERS_COSTS,
        inner=inner,
        tail_s=30,
    )
    result = delivery.run(plan, seed)
    if not at_root:
        return result
    import msgspec

    others = np.delete(result.latency_us, root, axis=1)
    return msgspec.structs.replace(result, latency_us=others)


def measure(result: Result) -> dict[str, float]:
    import numpy as np

    came = result.latency_us >= 0
    latency = result.latency_us[came] / 1000
    lengths = consecutive(came)
    runs = max(len(lengths), 1)
    found = {
        "success": float(came.mean()),
        "events_complete": float(came.all(axis=1).mean()),
        "loss_sd": float((~came).mean(axis=1).std()),
        "latency_ms": float(latency.mean()) if latency.size else 0.0,
        "latency_sd_ms": float(latency.std()) if latency.size else 0.0,
        "latency_max_ms": float(latency.max(initial=0)),
        "overhead": result.overhead(PACKETS),
        "retransmitted": result.gossip_packets / came.shape[0],
        "runs_1": lengths.count(1) / runs,
        "runs_2": lengths.count(2) / runs,
        "runs_longer": sum(length > 2 for length in lengths) / runs,
        "run_longest": float(max(lengths, default=0)),
        "success_before": float(came[:CHANGE_EVENT].mean()),
        "success_after": float(came[CHANGE_EVENT:].mean()) if len(came) > CHANGE_EVENT else 0.0,
    }
    times = np.where(came, result.latency_us, np.iinfo(np.int32).max)
    found |= {f"within_{t * 1000:g}_ms": float((times <= t * 1e6).mean()) for t in TIMES_S}
    return found


def consecutive(came: Any) -> list[int]:
    """The lengths of all runs of events that a subscriber missed one after the other."""
    lengths = []
    for column in came.T.tolist():
        length = 0
        for one in (*column, True):
            if one and length:
                lengths.append(length)
            length = 0 if one else length + 1
    return lengths


# Claims and plots.


def claim(text: str, paper: str, measured: str, holds: bool) -> Claim:
    return Claim(text, paper, measured, MET if holds else NOT_MET)


def mean(table: Table, setting: str, measured: str) -> float:
    return table[setting][f"{measured}_mean"]


def less(one: float | None, other: float | None) -> bool:
    """None stands for more than was tried."""
    return one is not None and (other is None or one < other)


def listed(values: Iterable[float], form: str = ".3f") -> str:
    return ", ".join(format(value, form) for value in values)


class Curves:
    """Settings as lines of a figure: by name, from the value on the x axis to the setting."""

    def __init__(self, lines: Mapping[str, Mapping[float, str]]) -> None:
        self.lines = lines

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s for line in self.lines.values() for s in line.values()))

    def values(self, table: Table, name: str, measured: str) -> list[float]:
        return [mean(table, setting, measured) for setting in self.lines[name].values()]

    def near(self, table: Table, name: str) -> float | None:
        """The smallest value with which 99.9 % come: no finite run shows an exact 1."""
        line = self.lines[name]
        full = (at for at, s in line.items() if mean(table, s, "success") >= NEARLY)
        return min(full, default=None)

    def at_near(self, table: Table, name: str, measured: str) -> float:
        """A figure at that value, or at the last one."""
        found, line = self.near(table, name), self.lines[name]
        return mean(table, line[found if found is not None else max(line)], measured)

    def needs(self, table: Table, *names: str) -> str:
        """These values, in words."""
        parts = []
        for name in names or self.lines:
            found = self.near(table, name)
            least = f"more than {max(self.lines[name]):g}" if found is None else f"{found:g}"
            parts.append(f"{name}: {least}")
        return ", ".join(parts) + " for 99.9 %"

    def plot(self, measured: str, x: str, y: str) -> Callable[[Table, Path], None]:
        def draw(table: Table, path: Path) -> None:
            from unisono.report.plots import curves

            drawn = {
                name: [(at, mean(table, setting, measured)) for at, setting in line.items()]
                for name, line in self.lines.items()
            }
            curves(drawn, x, y, path)

        return draw


def by_fan_out(words: str, fan_outs: Sequence[int]) -> dict[float, str]:
    """A line of a figure: this setting with each fan-out."""
    gossip, _, rest = words.partition(" ")
    return {f: f"{gossip} f={f} {rest}".rstrip() for f in fan_outs}


def figure(
    id: str,
    title: str,
    curves: Curves,
    claims: Claims,
    *,
    section: str,
    simulate: Callable[[str, int, bool], Mapping[str, float]],
    measured: str = "success",
    x: str = "gossip fan-out",
    y: str = "success rate",
    plot: Callable[[Table, Path], None] | None = None,
    assumed: Sequence[str] = COMMON,
    measures: tuple[str, ...] = MEASURES,
) -> Experiment:
    """An experiment whose settings are curves, drawn with what is `measured` as y."""
    kind, _, number = id.partition("-")
    place = {"fig": f", figure {number}", "table": f", table {number}"}.get(kind, "")
    return Experiment(
        id=id,
        title=title,
        source=section + place,
        assumed=tuple(assumed),
        settings=curves.settings,
        measures=measures,
        seeds=SEEDS,
        quick_seeds=QUICK_SEEDS,
        simulate=simulate,
        claims=claims,
        plot=plot or curves.plot(measured, x, y),
    )
