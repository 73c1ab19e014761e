"""`unisono model`: the papers' analytical models, for any parameters."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from rich.table import Table

from unisono.cli.ui import Ui
from unisono.errors import BadInput, EnvironmentLacks
from unisono.models.channel import Channel, lost
from unisono.models.markov import Markov
from unisono.models.tree import Tree

_SHOWN = 1e-12  # smaller probabilities are not printed, only given with --json


def arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="tree|markov|channel|latch")
    tree = _kind(kinds, "tree", "down a tree, then rounds of gossip (paper 003)")
    tree.add_argument("--degree", type=int, required=True, help="children of a node")
    tree.add_argument("--depth", type=int, required=True, help="levels below the root")
    tree.add_argument("--alpha", type=float, default=1.0, help="share of useful contacts (1)")
    markov = _kind(kinds, "markov", "one source, then rounds of gossip (thesis 5.4)")
    markov.add_argument("--fanout", type=int, default=1, help="contacts per round (1)")
    markov.add_argument("--no-coding", action="store_true", help="plain and repeated packets")
    for kind in (tree, markov):
        kind.add_argument("--redundancy", type=int, default=0, help="packets beside the event's")
        kind.add_argument("--rounds", type=int, default=0, help="of gossip (0)")
    _kind(kinds, "channel", "how many of the packets are lost")
    latch = _parser(kinds, "latch", "how long to hold what came before its predecessor (paper 002)")
    latch.add_argument("--violation", type=float, required=True, help="probability that is allowed")
    latch.add_argument(
        "--samples-ms", required=True, metavar="MS,...", help="signed differences of delays"
    )
    latch.add_argument(
        "--delta-ms", type=float, default=0.0, help="departure minus that of the missing one (0)"
    )
    latch.add_argument(
        "--rule", default="conditional", help="conditional, paper or chebyshev (conditional)"
    )


def _parser(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    kind = kinds.add_parser(name, help=text, description=text)
    kind.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object on stdout"
    )
    return kind


def _kind(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    kind = _parser(kinds, name, text)
    kind.add_argument("--packets", type=int, required=True, help="of an event")
    kind.add_argument("--loss", type=float, required=True, help="share of packets lost (PLR)")
    kind.add_argument("--burst", type=float, default=1.0, help="mean burst of losses (ABL); 1")
    return kind


def run(args: argparse.Namespace, ui: Ui) -> int:
    kinds: dict[str, Callable[[argparse.Namespace, Ui], None]] = {
        "tree": _tree,
        "markov": _markov,
        "channel": _channel,
        "latch": _latch,
    }
    kinds[args.kind](args, ui)
    return 0


def _tree(args: argparse.Namespace, ui: Ui) -> None:
    tree = Tree(
        degree=args.degree,
        depth=args.depth,
        packets=args.packets,
        redundancy=args.redundancy,
        channel=Channel(args.loss, args.burst),
        alpha=args.alpha,
    )
    _emit_success(tree.success(args.rounds), ui)


def _markov(args: argparse.Namespace, ui: Ui) -> None:
    chain = Markov(
        packets=args.packets,
        redundancy=args.redundancy,
        channel=Channel(args.loss, args.burst),
        fanout=args.fanout,
        coding=not args.no_coding,
    )
    _emit_success(chain.success(args.rounds), ui)


def _channel(args: argparse.Namespace, ui: Ui) -> None:
    if args.packets < 1:
        raise BadInput(f"packets = {args.packets}: a transmission has at least one")
    chances = lost(Channel(args.loss, args.burst), args.packets)
    ui.emit({"lost": list(chances)})
    ui.show(_table("lost", "probability", chances))


def _latch(args: argparse.Namespace, ui: Ui) -> None:
    try:
        from unisono.models import latch as model
    except ImportError as error:
        raise EnvironmentLacks(
            f"the latch needs scipy ({error}): pip install 'unisono[fifo]'"
        ) from error
    try:
        samples = [float(sample) for sample in args.samples_ms.split(",")]
    except ValueError:
        raise BadInput(
            f"samples-ms = {args.samples_ms!r}: numbers with commas between them, for example "
            "--samples-ms=3.1,-0.4"
        ) from None
    if args.rule not in model.RULES:
        raise BadInput(f"rule {args.rule!r} is unknown; use one of {', '.join(model.RULES)}")
    scale = model.scale(samples)
    found = {
        "scale_ms": scale,
        "quantile_ms": model.quantile(1 - args.violation, scale),
        "latch_ms": model.latch(args.violation, args.delta_ms, scale, args.rule),
    }
    ui.emit(found)
    table = Table("", "ms")
    for name, value in found.items():
        table.add_row(name.removesuffix("_ms"), f"{value:.6f}")
    ui.show(table)


def _emit_success(success: list[float], ui: Ui) -> None:
    ui.emit({"success": success})
    ui.show(_table("rounds", "success", success))


def _table(head: str, figure: str, values: Sequence[float]) -> Table:
    table = Table(head, figure)
    for index, value in enumerate(values):
        if value > _SHOWN:
            table.add_row(str(index), f"{value:.9f}")
    return table
