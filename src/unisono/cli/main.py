"""The command `unisono`: finds the command's module, runs it, turns errors into exit codes.

Exit codes: 0 fine, 1 a guarantee was violated or a claim not met, 2 bad usage or bad input,
3 the environment lacks something.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from unisono.cli.ui import Ui
from unisono.errors import UnisonoError

# command -> one line of help. The module `unisono.cli.<command>` has arguments() and run().
COMMANDS = {
    "demo": "the main job end to end: bare bus against total order, audited by Spark",
    "sim": "run a scenario in the simulator and check the guarantees",
    "audit": "audit trace folders with Spark",
    "reproduce": "run the papers' experiments as a Spark sweep",
    "model": "the papers' analytical models of loss and recovery",
    "plan": "which redundancy and gossip meet deadlines on given links",
    "bench": "benchmarks, as ratios against peers measured in the same run",
    "case": "case studies that run live: collaborative port-scan detection, algorithmic trading",
    "journal": "keep what a bus notifies, in order, in a durable journal",
    "node": "host topic managers on a bus, or be a node of a mesh, until told to stop",
    "mesh": "a mesh on this machine, for trying things out; keys",
    "pub": "publish events",
    "sub": "print what is notified",
    "top": "the live bus: members, topic order, rates, who manages what",
    "warm": "prepare this machine: compile loops, make Spark start faster",
    "doctor": "what this machine has and lacks",
}


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"unisono.cli.{command}")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="unisono",
        description="A quality-of-service layer for publish/subscribe, and its proof.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text in COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        command.add_argument(
            "--json", action="store_true", help="print one JSON object on stdout and nothing else"
        )
        _module(name).arguments(command)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    args = parser().parse_args(argv)
    ui = Ui(args.json)
    try:
        code: int = _module(args.command).run(args, ui)
    except UnisonoError as error:
        ui.err.print(f"unisono {args.command}: {error}", style="red", highlight=False, markup=False)
        ui.emit({"error": str(error), "exit_code": error.exit_code})
        return error.exit_code
    except KeyboardInterrupt:
        ui.err.print("interrupted")
        return 130
    return code


def entry() -> None:
    sys.exit(main())
