"""Figure 4.3: rollbacks against the event rate, total order against UEC."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

import msgspec

from unisono.core.effects import Notify, Send
from unisono.core.events import NUMBER, Event, Status
from unisono.experiments.data_centres import (
    MEASURES,
    PAPER_BUFFER,
    PROTOCOLS,
    QUICK_SEEDS,
    SEEDS,
    SETTING,
    UEC_SETTING,
    lines,
    measure,
    names,
    spread,
    verdict,
)
from unisono.experiments.registry import Claim, Experiment, Table
from unisono.qos.uec import Request, UnconsciousConsistency

RATES = (1, 5, 10, 25, 50, 100)
COMPARED = ("to-paper", "to-exact", "uec-1", "uec-2", "uec-3", "uec-1-fast")


def simulate(setting: str, seed: int, quick: bool) -> Mapping[str, float]:
    protocol, _, rate = setting.partition("@")
    case = msgspec.structs.replace(PROTOCOLS[protocol], rate_per_s=float(rate))
    return measure(case, seed, quick)


def text_example() -> tuple[list[int], list[int]]:
    """Section 4.3.2: p2 numbers three events, p3 one, p1 one. Numbers; those rolled back for."""
    members = ("p1", "p2", "p3")
    nodes = (*members, "replica")
    layers = {
        node: UnconsciousConsistency(node, nodes, members, Random(0), fanout=3) for node in nodes
    }
    layers["replica"].subscribe(["t"], None, 0)
    numbers, late = [], []
    for index, sequencer in enumerate(("p2", "p2", "p2", "p3", "p1")):
        event = Event(f"e{index}", "t", b"", "client", index, 0)
        for sent in layers[sequencer].receive(Request(event), "client", 0):
            if not isinstance(sent, Send) or sent.to != "replica":
                continue
            for heard in layers["replica"].receive(sent.message, sequencer, 0):
                if isinstance(heard, Notify) and heard.event.stamp is not None:
                    numbers.append(heard.event.stamp[NUMBER])
                    if heard.status is Status.OUT_OF_ORDER:
                        late.append(numbers[-1])
    return numbers, late


def claims(table: Table) -> list[Claim]:
    def rollbacks(protocol: str) -> list[float]:
        return [table[f"{protocol}@{rate}"]["rollbacks_mean"] for rate in RATES]

    paper, one, fast = map(rollbacks, ("to-paper", "uec-1", "uec-1-fast"))
    ours = [table[f"to-exact@{rate}"] for rate in RATES]
    worst = {m: max(row[f"{m}_max"] for row in ours) for m in ("rollbacks", "inconsistent")}
    equal = all(row["equal_min"] == 1 for row in ours)
    found = []
    for protocol in ("uec-2", "uec-3"):
        theirs = rollbacks(protocol)
        found.append(
            Claim(
                f"TO (printed stamps) is far below {protocol} at every rate",
                "TO largely outperforms UEC with 2 and 3 sequencers",
                f"TO {spread(paper)}; {protocol} {spread(theirs)} at {RATES} events/s",
                verdict(all(2 * mine <= other for mine, other in zip(paper, theirs, strict=True))),
            )
        )
    low, high = RATES.index(25), RATES.index(100)  # low: below 25 events/s
    numbers, late = text_example()
    found += [
        Claim(
            "the text's example: p2, p2, p2, p3, p1 number 2, 5, 8, 3, 1: two rollbacks",
            "2, 5, 8, 3, 1; two",
            f"{', '.join(map(str, numbers))}; rolled back for {', '.join(map(str, late))}",
            verdict(numbers == [2, 5, 8, 3, 1] and late == [3, 1]),
        ),
        Claim(
            "TO (printed stamps) is below UEC-1 at low rates",
            "below",
            f"{spread(paper[:low], 2)} against {spread(one[:low], 2)} (fast nodes: "
            f"{spread(fast[:low], 2)}) at {RATES[:low]} events/s",
            verdict(all(mine < other for mine, other in zip(paper[:low], one[:low], strict=True))),
        ),
        Claim(
            "TO (printed stamps) is above UEC-1 at a high rate",
            "above",
            f"{paper[high]:.1%} against {one[high]:.1%} (fast nodes: {fast[high]:.1%}) "
            f"at 100 events/s",
            verdict(paper[high] > one[high]),
        ),
        Claim(
            "ours: exact stamps with a sufficient buffer need no rollback at any rate",
            "not in the paper",
            f"at most {worst['rollbacks']:.1%} in any run; UEC-2 {spread(rollbacks('uec-2'))}",
            verdict(worst["rollbacks"] == 0),
        ),
        Claim(
            "ours: with exact stamps all replicas end equal, and were never inconsistent",
            "not in the paper",
            f"{'equal' if equal else 'not equal'}; inconsistent for at most "
            f"{worst['inconsistent']:.1%} of the time in any run (UEC-2 at 10 events/s: "
            f"{table['uec-2@10']['inconsistent_mean']:.0%}, without what was lost "
            f"{table['uec-2@10']['disordered_mean']:.0%})",
            verdict(equal and worst["inconsistent"] == 0),
        ),
        Claim(
            "ours: who is late is exactly who is tagged, under every protocol",
            "not in the paper",
            "rollbacks = tagged in every setting"
            if _tags_exact(table)
            else "rollbacks differ from tagged",
            verdict(_tags_exact(table)),
        ),
    ]
    return found


def _tags_exact(table: Table) -> bool:
    return all(row["rollbacks_mean"] == row["tagged_mean"] for row in table.values())


def plot(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    drawn = lines(table, COMPARED, RATES, "rollbacks", 100)
    curves(drawn, "events/s", "rollbacks (% of notifications)", path)


EXPERIMENT = Experiment(
    id="fig-4.3",
    title="Rollbacks against the event rate: total order and unconscious eventual consistency",
    source="thesis section 4.3.2, figure 4.3",
    assumed=(
        *SETTING,
        *UEC_SETTING,
        f"printed stamps with a buffer of {PAPER_BUFFER}, beyond which the text sees no gain, and "
        "1 s to live; exact stamps with no bound and 1 s; 5 categories, 2 centres of 5 replicas",
    ),
    settings=names(COMPARED, RATES),
    measures=MEASURES,
    seeds=SEEDS,
    quick_seeds=QUICK_SEEDS,
    simulate=simulate,
    claims=claims,
    plot=plot,
)
