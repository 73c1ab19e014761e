"""`unisono model`: the papers' analytical models, for any parameters."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from rich.table import Table

from unisono.cli.ui import Ui
from unisono.errors import BadInput
from unisono.models.channel import Channel, lost
from unisono.models.markov import Markov
from unisono.models.tree import Tree

_SHOWN = 1e-12  # smaller probabilities are not printed, only given with --json


def arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="tree|markov|channel")
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


def _kind(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    kind = kinds.add_parser(name, help=text, description=text)
    kind.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="one JSON object on stdout"
    )
    kind.add_argument("--packets", type=int, required=True, help="of an event")
    kind.add_argument("--loss", type=float, required=True, help="share of packets lost (PLR)")
    kind.add_argument("--burst", type=float, default=1.0, help="mean burst of losses (ABL); 1")
    return kind


def run(args: argparse.Namespace, ui: Ui) -> int:
    kinds: dict[str, Callable[[argparse.Namespace, Ui], None]] = {
        "tree": _tree,
        "markov": _markov,
        "channel": _channel,
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


def _emit_success(success: list[float], ui: Ui) -> None:
    ui.emit({"success": success})
    ui.show(_table("rounds", "success", success))


def _table(head: str, figure: str, values: Sequence[float]) -> Table:
    table = Table(head, figure)
    for index, value in enumerate(values):
        if value > _SHOWN:
            table.add_row(str(index), f"{value:.9f}")
    return table
