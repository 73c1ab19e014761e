"""`unisono plan`: which redundancy and gossip meet deadlines on given links."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
from rich.table import Table

from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks, Unsupported
from unisono.models.channel import Channel
from unisono.models.planner import INFEASIBLE, Advice, Target, parse_target, plan
from unisono.models.recovery import Group
from unisono.qos.reliable.options import Reliability

_GENERATION = 16  # packets, the default of delivery="reliable"
_EVENTS = 1000
_NOTIFICATIONS = 2_000_000  # simulated at most


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--loss", type=float, required=True, help="share of packets lost (PLR)")
    parser.add_argument("--burst", type=float, default=1.0, help="mean burst of losses (ABL); 1")
    parser.add_argument("--nodes", type=int, required=True, help="publishers and subscribers")
    parser.add_argument("--event-bytes", type=int, required=True, help="size of an event")
    parser.add_argument("--packet-bytes", type=int, default=1472, help="size of a packet (1472)")
    parser.add_argument("--rate", type=float, default=1.0, help="events per second (1)")
    parser.add_argument("--link-ms", type=float, default=50.0, help="delay of a link (50)")
    parser.add_argument(
        "--within",
        action="append",
        required=True,
        metavar="MS:SHARE",
        help="a target: this share of subscribers in this time; several are allowed",
    )
    parser.add_argument("--verify", action="store_true", help="simulate the advice")
    parser.add_argument("--seed", type=int, default=1, help="of the simulation (1)")


def run(args: argparse.Namespace, ui: Ui) -> int:
    targets = [parse_target(text) for text in args.within]
    if args.event_bytes < 0 or args.packet_bytes < 1:
        raise BadInput("--event-bytes is at least 0, --packet-bytes at least 1")
    count = max(1, -(-args.event_bytes // args.packet_bytes))
    generations = -(-count // _GENERATION)
    group = Group(
        nodes=args.nodes,
        packets=-(-count // generations),
        generations=generations,
        channel=Channel(args.loss, args.burst),
        link_s=args.link_ms / 1000,
        rate_per_s=args.rate,
    )
    advice = plan(group, targets)
    told = _told(advice, group, targets)
    if args.verify:
        with ui.progress() as progress:
            told["verified"] = _verify(advice.setting, group, targets, args.seed, progress)
    ui.emit(told)
    _show(ui, told, targets)
    met = told.get("verified", {}).get("met", True)
    return 0 if met and advice.confidence != INFEASIBLE else 1


def _told(advice: Advice, group: Group, targets: list[Target]) -> dict[str, Any]:
    predicted = advice.predicted
    setting = advice.setting
    return {
        "feasible": advice.confidence != INFEASIBLE,
        "confidence": advice.confidence,
        "advice": {
            "strategy": "asking only" if setting.gossip == "none" else setting.gossip,
            "redundancy": setting.redundancy,
            "fan_out": setting.fan_out if setting.gossip != "none" else None,
            "fan_in": setting.fan_in if setting.gossip == "pull" else None,
            "period_s": setting.period_s,
            "reliability": _options(setting),
        },
        "predicted": {
            "success": round(predicted.shares[-1], 6),
            "within": [
                {
                    "within_ms": target.within_ms,
                    "target": target.share,
                    "share": round(predicted.within(target.within_ms / 1000), 6),
                }
                for target in targets
            ],
            "latency_ms": round(predicted.latency_s * 1000, 1),
            "overhead": round(predicted.overhead / group.nodes, 3),
            "idle": round(predicted.idle / group.nodes, 3),
        },
        "nearest": [
            {"within_ms": round(t.within_ms, 1), "share": round(t.share, 6)} for t in advice.nearest
        ],
        "assumed": {
            "packets": group.packets,
            "generations": group.generations,
            "nodes": group.nodes,
            "link_ms": group.link_s * 1000,
            "path": "publisher to bus, bus to each subscriber; every link loses alike",
        },
    }


def _options(setting: Reliability) -> dict[str, Any]:
    """What to give to `Reliability`: what differs from its defaults."""
    given, defaults = msgspec.structs.asdict(setting), msgspec.structs.asdict(Reliability())
    return {name: value for name, value in given.items() if value != defaults[name]}


def _verify(
    setting: Reliability, group: Group, targets: list[Target], seed: int, progress: Any
) -> dict[str, Any]:
    """Simulate the advice on the columnar engine."""
    if group.generations > 1:
        raise Unsupported(
            f"an event of {group.packets * group.generations} packets has {group.generations} "
            "generations, --verify simulates one: leave it out, or give larger packets"
        )
    try:
        import numpy as np

        from unisono.sim.columnar import delivery
    except ImportError as error:
        raise EnvironmentLacks(
            f"--verify needs numpy and numba ({error}): pip install 'unisono[reliable]'"
        ) from error
    from unisono.sim.channels import Wan
    from unisono.sim.losses import Loss

    events = max(20, min(_EVENTS, _NOTIFICATIONS // group.nodes))
    keep_s = max(10.0, 2 * max(t.within_ms for t in targets) / 1000)
    task = progress.add_task(f"simulating {events} events", total=1.0)
    wan = Wan(
        slow_share=0,
        fast_mean_ms=group.link_s * 1000,
        slow_mean_ms=max(group.link_s * 1000, 1.0),
        fast_sd_ms=0,
        minimum_ms=min(1.0, group.link_s * 1000),
        fifo=False,
        draws="hashed",
    )
    result = delivery.run(
        delivery.Plan(
            parents=delivery.star_parents(group.nodes),
            # far enough apart that few are held at a time
            published_us=np.arange(1, events + 1) * round(max(1.0, keep_s / 40) * 1e6),
            publishers=(np.arange(events) % group.nodes).astype(np.int32),
            subscribes=np.ones(group.nodes, np.bool_),
            packets=group.packets,
            options=msgspec.structs.replace(setting, keep_s=keep_s),
            loss=Loss(rate=group.channel.loss, burst=group.channel.burst),
            wan=wan,
            tail_s=keep_s,
        ),
        seed,
        progress=lambda done: progress.update(task, completed=done),
    )
    within = []
    for target in targets:
        share = result.within(target.within_ms / 1000)
        within.append(
            {
                "within_ms": target.within_ms,
                "target": target.share,
                "share": round(share, 6),
                "met": share >= target.share,
            }
        )
    return {
        "met": all(one["met"] for one in within),
        "events": events,
        "seed": seed,
        "success": round(result.success, 6),
        "within": within,
        "latency_ms": round(float(result.latency_us[result.latency_us >= 0].mean()) / 1000, 1),
        "overhead": round(result.overhead(group.packets) / group.nodes, 3),
    }


def _show(ui: Ui, told: dict[str, Any], targets: list[Target]) -> None:
    if not told["feasible"]:
        near = ", ".join(
            f"{t['share']:.2%} within {t['within_ms']:.0f} ms" for t in told["nearest"]
        )
        ui.show(f"These targets cannot be met on such links. Nearest: {near}, with")
    advice = told["advice"]
    given = ", ".join(f"{name}={value!r}" for name, value in advice["reliability"].items())
    ui.show(f'connect(..., delivery="reliable", reliability=Reliability({given}))')
    ui.show(f"strategy: {advice['strategy']}; {told['confidence']}")
    table = Table("", "predicted", *(["simulated"] if "verified" in told else []))
    seen = told.get("verified", {})
    for index, target in enumerate(targets):
        row = [f"{told['predicted']['within'][index]['share']:.4%}"]
        row += [f"{seen['within'][index]['share']:.4%}"] if seen else []
        table.add_row(f"within {target.within_ms:g} ms (target {target.share:.2%})", *row)
    for name, form in (("success", ".4%"), ("latency_ms", ".0f"), ("overhead", ".2f")):
        row = [format(told["predicted"][name], form)]
        row += [format(seen[name], form)] if seen else []
        table.add_row({"overhead": "packets per packet and node"}.get(name, name), *row)
    ui.show(table)
