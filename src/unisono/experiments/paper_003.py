"""Paper 003, figures 8 to 11 and table I: gossip with coding, deadlines, a sudden change."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from unisono.experiments.lossy_group import (
    COMMON,
    TIMES_S,
    Claims,
    Curves,
    by_fan_out,
    claim,
    figure,
    less,
    listed,
    mean,
    simulator,
)
from unisono.experiments.registry import Claim, Table

ASSUMED = (
    *COMMON,
    "all 40 nodes subscribe; each event is published by a random one, which sends it to the root "
    "of the tree over a link that loses packets as all do, and gossips like everybody else",
    "redundancy in recovery is packets beside those of the event",
)
FAN_OUTS = (1, 2, 3, 4, 6, 8, 10, 12, 16)

simulate = simulator({"plr": "0.02", "at": "all"})


# Figures 8 and 9: what is lost, with and without coding.

_some: dict[float, str] = {0: "none"}
_push = Curves({"push": _some | {f: f"push f={f}" for f in (1, 2, 3, 4)}})
_pull_in = Curves({"pull": _some | {k: f"pull f=2 fan_in={k}" for k in (1, 2, 3, 4)}})
_reliable = Curves(
    {g: by_fan_out(g, FAN_OUTS) for g in ("push", "pull", "push-pull")}
    | {f"pull, fan-in {k}": by_fan_out(f"pull fan_in={k}", FAN_OUTS) for k in (2, 3)}
)


def _losses(curves: Curves, text: str) -> Claims:
    def claims(table: Table) -> list[Claim]:
        (line,) = curves.lines.values()
        ordered = sorted(line)
        lost = [1 - mean(table, line[at], "success") for at in ordered]
        sd = [mean(table, line[at], "loss_sd") for at in ordered]
        fall, sd_fall = 1 - lost[-1] / lost[0], 1 - sd[-1] / sd[0]
        return [
            claim(
                f"{text} lowers the loss rate and how much it varies",
                "about 80 % less, mean and standard deviation (judged: the mean by 80 % or more, "
                "the deviation by half)",
                f"lost {listed(lost)}, standard deviation {listed(sd)} for {ordered}: "
                f"{fall:.0%} and {sd_fall:.0%} less",
                fall >= 0.8 and sd_fall >= 0.5,
            )
        ]

    return claims


def _runs(*with_gossip: str) -> Claims:
    def claims(table: Table) -> list[Claim]:
        longest = mean(table, "none", "run_longest")
        short = {s: mean(table, s, "runs_1") + mean(table, s, "runs_2") for s in with_gossip}
        return [
            claim(
                "without recovery several consecutive events are lost",
                "up to 6",
                f"up to {longest:.0f}",
                longest >= 4,
            ),
            claim(
                "with gossip mostly one or two consecutive events are lost",
                "mostly 1 or 2 (judged: 80 % of the runs)",
                ", ".join(f"{s}: {share:.0%}" for s, share in short.items()),
                min(short.values()) >= 0.8,
            ),
        ]

    return claims


def _claims_8e(table: Table) -> list[Claim]:
    push, pull, both = (_reliable.near(table, g) for g in ("push", "pull", "push-pull"))
    at_4 = [mean(table, f"{g} f=4", "success") for g in ("push", "pull", "push-pull")]
    return [
        claim(
            "push needs the smallest fan-out for complete reliability",
            "push lowest",
            _reliable.needs(table, "push", "pull", "push-pull"),
            less(push, pull) and less(push, both),
        ),
        claim(
            "push/pull is close to pull",
            "close (judged: success within 0.03 at fan-out 4)",
            f"push, pull, push/pull: {listed(at_4)} at fan-out 4",
            abs(at_4[1] - at_4[2]) <= 0.03,
        ),
    ]


def _claims_8f(table: Table) -> list[Claim]:
    one, three = _reliable.near(table, "pull"), _reliable.near(table, "pull, fan-in 3")
    return [
        claim(
            "a higher fan-in lowers the fan-out for complete reliability",
            "lower",
            _reliable.needs(table, "pull", "pull, fan-in 2", "pull, fan-in 3"),
            less(three, one),
        )
    ]


def _coded(gossip: str) -> Curves:
    line = {a: f"{gossip} f=2" + (f" a={a} spare={a}" if a else "") for a in (0, 1, 2)}
    return Curves({gossip: {float(a): s for a, s in line.items()}})


_push_coded, _pull_coded = _coded("push"), _coded("pull")


def _fewer_lost(curves: Curves) -> Claims:
    def claims(table: Table) -> list[Claim]:
        ((gossip, line),) = curves.lines.items()
        lost = [1 - mean(table, s, "success") for s in line.values()]
        return [
            claim(
                f"{gossip}: coding lowers the share of lost events",
                "reduced",
                f"{listed(lost)} for 0, 1, 2 coded packets",
                lost[0] > lost[1] > lost[2],
            )
        ]

    return claims


def _fewer_in_a_row(curves: Curves) -> Claims:
    def claims(table: Table) -> list[Claim]:
        ((gossip, line),) = curves.lines.items()
        longer = [mean(table, s, "runs_2") + mean(table, s, "runs_longer") for s in line.values()]
        return [
            claim(
                f"{gossip}: coding lowers the number of consecutive losses",
                "reduced",
                f"runs of more than one event: {listed(longer)} for 0, 1, 2 coded packets",
                longer[2] < longer[0],
            )
        ]

    return claims


def _where(gossip: str) -> Curves:
    """Two redundant packets, coded or duplicated, in dissemination or in recovery."""
    return Curves(
        {
            "none": by_fan_out(gossip, FAN_OUTS),
            "RLC in dissemination": by_fan_out(f"{gossip} a=2", FAN_OUTS),
            "RLC in recovery": by_fan_out(f"{gossip} spare=2", FAN_OUTS),
            "RD in dissemination": by_fan_out(f"{gossip} a=2 rd=1", FAN_OUTS),
            "RD in recovery": by_fan_out(f"{gossip} spare=2 rd=1", FAN_OUTS),
        }
    )


_push_where, _pull_where = _where("push"), _where("pull")


def _claims_where(curves: Curves) -> Claims:
    def claims(table: Table) -> list[Claim]:
        at_2 = {name: mean(table, line[2], "success") for name, line in curves.lines.items()}
        text = ", ".join(f"{n}: {s:.4f}" for n, s in at_2.items()) + " at fan-out 2"
        duplicated = max(at_2["RD in dissemination"], at_2["RD in recovery"]) - at_2["none"]
        gain = at_2["RLC in dissemination"] - at_2["none"]
        return [
            claim(
                "duplicates have no effect",
                "no effect (judged: less than a third of what combinations bring)",
                text,
                duplicated < gain / 3,
            ),
            claim(
                "combinations help most in dissemination",
                "especially in dissemination",
                text + "; " + curves.needs(table),
                at_2["RLC in dissemination"] > at_2["RLC in recovery"] > at_2["none"] - 0.001,
            ),
        ]

    return claims


# Figure 10: cost and latency.

REDUNDANCIES = (0, 2, 4, 6, 8, 10, 12, 16, 20)
DUPLICATES = (0, 4, 8, 12, 16, 20, 24, 29, 34, 40, 47)
_ten_a = Curves(
    {
        "RLC": {a: f"none a={a}" for a in REDUNDANCIES},
        "RD": {a: f"none a={a} rd=1" for a in DUPLICATES},
    }
)


def _claims_10a(table: Table) -> list[Claim]:
    coded, plain = _ten_a.near(table, "RLC"), _ten_a.near(table, "RD")
    at_29 = mean(table, "none a=29 rd=1", "success")
    return [
        claim(
            "complete delivery needs less than half the packets with RLC",
            "RD 29, RLC less than half",
            _ten_a.needs(table) + f"; with 29 duplicates {at_29:.3f}",
            coded is not None and (plain is None or coded < plain / 2),
        )
    ]


_cost = Curves(
    {
        f"{g}, {name}": by_fan_out(f"{g}{words}", FAN_OUTS)
        for g in ("push", "pull")
        for name, words in (("no coding", ""), ("2 coded", " a=2 spare=2"))
    }
)


def _claims_10b(table: Table) -> list[Claim]:
    cost = {name: _cost.at_near(table, name, "overhead") for name in _cost.lines}
    text = ", ".join(f"{n}: {c:.1f}" for n, c in cost.items()) + " at the fan-out for 99.9 %; "
    return [
        claim(
            "push costs more than pull",
            "push > pull",
            text + _cost.needs(table),
            cost["push, no coding"] > cost["pull, no coding"],
        ),
        claim(
            "coding lowers the overhead of both",
            "lower",
            text,
            all(cost[f"{g}, 2 coded"] < cost[f"{g}, no coding"] for g in ("push", "pull")),
        ),
    ]


_fan_in = Curves({f"fan-in {k}": by_fan_out(f"pull fan_in={k}", FAN_OUTS) for k in (1, 2, 3)})


def _claims_10c(table: Table) -> list[Claim]:
    cost = [_fan_in.at_near(table, name, "overhead") for name in _fan_in.lines]
    return [
        claim(
            "a lower fan-in needs a higher fan-out and costs more",
            "more overhead with a lower fan-in",
            f"{listed(cost, '.1f')} for fan-in 1, 2, 3; {_fan_in.needs(table)}",
            cost[0] > max(cost[1:]),
        )
    ]


def _claims_latency(measured: str, what: str) -> Claims:
    def claims(table: Table) -> list[Claim]:
        found = {name: _cost.values(table, name, measured) for name in _cost.lines}
        text = "; ".join(f"{n}: {listed(v, '.0f')}" for n, v in found.items()) + " ms"
        names = ("push", "pull")
        faster = all(
            p < q for p, q in zip(found["push, no coding"], found["pull, no coding"], strict=True)
        )
        wider = all(found[f"{g}, no coding"][-1] < max(found[f"{g}, no coding"]) for g in names)
        coded = all(
            c < p
            for g in names
            for p, c in zip(found[f"{g}, no coding"], found[f"{g}, 2 coded"], strict=True)
        )
        return [
            claim(f"push has the lower {what}", "push < pull", text, faster),
            claim(f"a larger fan-out lowers the {what}", "lower", text, wider),
            claim(f"coding lowers the {what}", "lower", text, coded),
        ]

    return claims


_interval = Curves({"pull": {p: f"pull f=2 a=2 spare=2 period={p}" for p in (0.5, 1.0, 1.5)}})


def _claims_interval(table: Table) -> list[Claim]:
    slow, fast = "pull f=2 a=2 spare=2 period=1.5", "pull f=2 a=2 spare=2 period=0.5"

    def change(measured: str) -> float:
        return mean(table, fast, measured) / mean(table, slow, measured) - 1

    return [
        claim(
            "a shorter pull interval lowers mean and standard deviation of the latency",
            "by 15 % and 28 % (from 1.5 s to what is not said; judged: lower)",
            f"{change('latency_ms'):+.0%} and {change('latency_sd_ms'):+.0%} from 1.5 to 0.5 s",
            change("latency_ms") < 0 and change("latency_sd_ms") < 0,
        ),
        claim(
            "the overhead grows slightly",
            "by 2 % (judged: by 10 % or less)",
            f"{change('overhead'):+.1%}",
            0 < change("overhead") <= 0.1,
        ),
        claim(
            "the success stays the same",
            "negligible variation (judged: 0.02)",
            f"{mean(table, slow, 'success'):.4f} and {mean(table, fast, 'success'):.4f}",
            abs(mean(table, slow, "success") - mean(table, fast, "success")) <= 0.02,
        ),
    ]


# Figure 10f and table I: the deadlines of category D-1.


def _d1(gossip: str, a: int, at: str, ask: int) -> str:
    redundancy = f" a={a} spare={a}" if a else ""
    return f"{gossip} f=2{redundancy} period=0.5 at={at} ask={ask}"


_PROTOCOLS = tuple((g, a) for g in ("push", "pull") for a in (0, 2))
_deadline_settings = {
    f"{g}, {a} coded, publisher {at}{', asking' if ask else ''}": _d1(g, a, at, ask)
    for at in ("root", "all")
    for ask in (0, 1)
    for g, a in _PROTOCOLS
}
_deadlines = Curves({name: {1.0: setting} for name, setting in _deadline_settings.items()})


def _shares(table: Table, setting: str) -> tuple[float, float, float]:
    return (
        mean(table, setting, "within_1000_ms"),
        mean(table, setting, "within_2000_ms"),
        mean(table, setting, "success"),
    )


def _timely(shares: tuple[float, float, float]) -> bool:
    return shares[0] >= 0.95 and shares[1] >= 0.998


def _claims_10f(table: Table) -> list[Claim]:
    def text(gossip: str, a: int) -> str:
        parts = []
        for at, where in (("root", "publisher at the root"), ("all", "publisher anywhere")):
            for ask, how in ((1, "asking"), (0, "as printed")):
                one, two, came = _shares(table, _d1(gossip, a, at, ask))
                parts.append(f"{where}, {how}: {one:.4f} and {two:.4f} (of all {came:.4f})")
        return "; ".join(parts)

    push = _shares(table, _d1("push", 0, "root", 1))
    pull = _shares(table, _d1("pull", 2, "root", 1))
    bare = _shares(table, _d1("pull", 0, "all", 0))
    printed = _shares(table, _d1("push", 0, "all", 0))
    return [
        claim(
            "push meets D-1 without redundancy: 95 % in 1 s, 99.8 % in 2 s",
            "always met (judged: with asking, publisher at the root)",
            text("push", 0),
            _timely(push),
        ),
        claim(
            "pull with two coded packets meets D-1",
            "met (judged: with asking, publisher at the root)",
            text("pull", 2),
            _timely(pull),
        ),
        claim(
            "pull without redundancy does not meet D-1",
            "not met (judged: as printed, publisher anywhere)",
            text("pull", 0),
            not _timely(bare),
        ),
        claim(
            "as printed: push meets D-1 of all events, not only of those that come",
            "met; but figure 11 has a success of 0.942 for the same setting",
            f"{printed[0]:.4f} in 1 s, success {printed[2]:.4f}",
            _timely(printed),
        ),
    ]


CATEGORIES = {"D-1": (1, 2), "D-2": (2, 4), "D-3": (5, 8)}


def _claims_table(table: Table) -> list[Claim]:
    found = []
    for category, (most, nearly_all) in CATEGORIES.items():
        met, seen = [], []
        for name, setting in _deadline_settings.items():
            first = mean(table, setting, f"within_{most * 1000}_ms")
            second = mean(table, setting, f"within_{nearly_all * 1000}_ms")
            seen.append(f"{name}: {first:.4f}, {second:.4f}")
            if first >= 0.95 and second >= 0.998:
                met.append(name)
        found.append(
            claim(
                f"{category}: 95 % within {most} s and 99.8 % within {nearly_all} s can be met",
                "a requirement",
                f"met by {'; '.join(met) or 'none'}. All: {'; '.join(seen)}",
                bool(met),
            )
        )
    return found


def _plot_10f(table: Table, path: Path) -> None:
    from unisono.report.plots import curves

    drawn = {
        name: [(t, mean(table, setting, f"within_{t * 1000:g}_ms")) for t in TIMES_S]
        for name, setting in _deadline_settings.items()
    }
    curves(drawn, "seconds", "share of notifications", path)


# Figure 11: a sudden change.

_change = Curves(
    {
        f"{g}, {a} coded": {2.0: f"{g} f=2{f' a={a} spare={a}' if a else ''} period=0.5 then=0.05"}
        for g, a in _PROTOCOLS
    }
    | {"no recovery": {2.0: "none then=0.05"}}
)


def _before_after(table: Table, name: str) -> tuple[float, float]:
    setting = _change.lines[name][2.0]
    return mean(table, setting, "success_before"), mean(table, setting, "success_after")


def _claims_11a(table: Table) -> list[Claim]:
    before, after = _before_after(table, "no recovery")
    plain, coded = _before_after(table, "push, 0 coded"), _before_after(table, "push, 2 coded")
    return [
        claim(
            "the loss rate of events rises when PLR goes from 2 to 5 %",
            "by about 28 % (read as points; judged: 15 to 45)",
            f"from {1 - before:.3f} to {1 - after:.3f} without recovery",
            0.15 <= before - after <= 0.45,
        ),
        claim(
            "push: success falls",
            "from 0.942 to 0.890 (judged: begins within 0.02 of 0.942, and falls)",
            f"from {plain[0]:.3f} to {plain[1]:.3f}",
            abs(plain[0] - 0.942) <= 0.02 and plain[1] < plain[0],
        ),
        claim(
            "push with two coded packets: success falls less",
            "from 0.984 to 0.968 (judged: begins within 0.02 of 0.984, and falls less)",
            f"from {coded[0]:.3f} to {coded[1]:.3f}",
            abs(coded[0] - 0.984) <= 0.02 and coded[0] - coded[1] < plain[0] - plain[1],
        ),
    ]


def _claims_11b(table: Table) -> list[Claim]:
    falls = {}
    for g, a in _PROTOCOLS:
        before, after = _before_after(table, f"{g}, {a} coded")
        falls[g, a] = 1 - after / before
    text = ", ".join(f"{g}, {a} coded: {fall:.1%}" for (g, a), fall in falls.items())
    return [
        claim(
            "coding makes the change matter much less",
            "much lower impact",
            text,
            all(falls[g, 2] < 0.75 * falls[g, 0] for g in ("push", "pull")),
        ),
        claim(
            "push suffers more than pull",
            "a stronger impact on push",
            text,
            falls["push", 0] > falls["pull", 0],
        ),
    ]


def _claims_11c(table: Table) -> list[Claim]:
    runs = {
        name: mean(table, line[2.0], "runs_2") + mean(table, line[2.0], "runs_longer")
        for name, line in _change.lines.items()
    }
    return [
        claim(
            "coding drastically reduces consecutive losses, also after the change",
            "drastically (judged: by a third)",
            ", ".join(f"{n}: {share:.1%} of the runs" for n, share in runs.items()),
            all(runs[f"{g}, 2 coded"] < runs[f"{g}, 0 coded"] * 2 / 3 for g in ("push", "pull")),
        )
    ]


_figure = partial(figure, section="paper 003, section VII", simulate=simulate, assumed=ASSUMED)
_CODED, _RUNS = "coded packets", "share of the runs that are of one event"
_timely_figure = partial(
    _figure,
    plot=_plot_10f,
    assumed=(*ASSUMED, "fan-out 2, fan-in 1, pull interval 0.5 s"),
)
EXPERIMENTS = (
    _figure("fig-8a", "Loss rate of push", _push, _losses(_push, "a larger fan-out of push")),
    _figure("fig-8b", "Loss rate of pull by fan-in", _pull_in,
            _losses(_pull_in, "a larger fan-in of pull"), x="fan-in"),
    _figure("fig-8c", "Consecutive losses, push", _push, _runs("push f=2", "push f=4"),
            measured="runs_1", y=_RUNS),
    _figure("fig-8d", "Consecutive losses, pull", _pull_in,
            _runs("pull f=2 fan_in=1", "pull f=2 fan_in=3"), measured="runs_1", x="fan-in",
            y=_RUNS),
    _figure("fig-8e", "Fan-out for complete reliability", _reliable, _claims_8e),
    _figure("fig-8f", "Fan-out for complete reliability by fan-in", _reliable, _claims_8f),
    _figure("fig-9a", "Loss rate of push with coding", _push_coded, _fewer_lost(_push_coded),
            x=_CODED),
    _figure("fig-9b", "Loss rate of pull with coding", _pull_coded, _fewer_lost(_pull_coded),
            x=_CODED),
    _figure("fig-9c", "Consecutive losses of push with coding", _push_coded,
            _fewer_in_a_row(_push_coded), measured="runs_1", x=_CODED, y=_RUNS),
    _figure("fig-9d", "Consecutive losses of pull with coding", _pull_coded,
            _fewer_in_a_row(_pull_coded), measured="runs_1", x=_CODED, y=_RUNS),
    _figure("fig-9e", "RLC and RD, push", _push_where, _claims_where(_push_where)),
    _figure("fig-9f", "RLC and RD, pull", _pull_where, _claims_where(_pull_where)),
    _figure("fig-10a", "Redundancy for complete delivery", _ten_a, _claims_10a,
            x="redundant packets"),
    _figure("fig-10b", "Overhead at complete reliability", _cost, _claims_10b,
            measured="overhead", y="overhead"),
    _figure("fig-10c", "Overhead of pull by fan-in", _fan_in, _claims_10c,
            measured="overhead", y="overhead"),
    _figure("fig-10d", "Mean latency", _cost, _claims_latency("latency_ms", "mean latency"),
            measured="latency_ms", y="ms"),
    _figure("fig-10e", "Standard deviation of the latency", _cost,
            _claims_latency("latency_sd_ms", "standard deviation of the latency"),
            measured="latency_sd_ms", y="ms"),
    _timely_figure("fig-10f", "The deadlines of category D-1", _deadlines, _claims_10f),
    _timely_figure("table-1", "Which protocol meets which category of deadlines", _deadlines,
                   _claims_table),
    _figure("fig-11a", "A sudden change from PLR 2 to 5 %", _change, _claims_11a,
            measured="success_after"),
    _figure("fig-11b", "How much success falls", _change, _claims_11b, measured="success_after"),
    _figure("fig-11c", "Consecutive losses after the change", _change, _claims_11c,
            measured="runs_1", y=_RUNS),
    _figure("sec-vii-c", "A shorter pull interval", _interval, _claims_interval,
            measured="latency_ms", x="pull interval (s)", y="mean latency (ms)"),
)  # fmt: skip
