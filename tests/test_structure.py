"""The shape of the code: who may import whom, purity of the core, sizes. Each rule says why."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "unisono"
MODULES = sorted(SOURCE.rglob("*.py"))

# package -> the packages of ours that it may import. Data flows down and up one stack, and then one
# way: trace -> pipeline -> report. The audit must not inherit the protocol's bugs.
ALLOWED = {
    "core": {"core", "errors", "trace.schema"},
    "raft": {"core", "raft", "errors"},
    "segments": {"segments", "errors", "files"},
    "models": {"models", "qos.reliable.options", "errors"},
    "qos": {
        "core",
        "qos",
        "raft",
        "trace.schema",
        "models.channel",
        "models.latch",
        "errors",
        "compiled",
    },
    "ens": {"core", "ens", "errors"},
    "trace": {"trace", "errors", "files"},
    "sim": {
        "core",
        "ens.scribe",
        "models.channel",
        "qos",
        "sim",
        "trace",
        "errors",
        "version",
        "compiled",
    },
    "journal": {"core.events", "core.predicate", "journal", "errors", "files"},
    "net": {
        "core",
        "qos",
        "segments",
        "ens",
        "journal",
        "net",
        "trace",
        "errors",
        "files",
        "version",
    },
    "pipeline": {
        "pipeline",
        "trace.schema",
        "errors",
        "files",
        "experiments.registry",
        "compiled",
        "version",
    },
    "report": {"report", "errors"},
    "spark": {
        "spark",
        "pipeline.session",
        "pipeline.locate",
        "pipeline.read",
        "qos.fifo",
        "ens.base",
        "core",
        "models.latch",
        "errors",
        "files",
        "journal",
        "net",
        "trace.schema",
    },
    "cases": {
        "cases",
        "core",
        "qos",
        "sim",
        "net",
        "journal",
        "spark",
        "trace",
        "errors",
        "bench.server",
    },
    "experiments": {
        "experiments",
        "models",
        "cases",
        "core",
        "ens.scribe.options",
        "qos",
        "sim",
        "trace",
        "pipeline",
        "report",
        "errors",
    },
    "bench": {
        "bench",
        "core",
        "ens.base",
        "experiments",
        "journal",
        "net",
        "pipeline",
        "qos",
        "sim",
        "spark",
        "trace",
        "errors",
        "version",
        "compiled",
    },
}
# Pure code takes time and randomness from outside and does no I/O: what is simulated is what ships.
PURE = ("core", "raft", "qos", "ens/scribe")
IMPURE = {
    "asyncio",
    "socket",
    "time",
    "threading",
    "subprocess",
    "pyspark",
    "os",
    "pathlib",
    "secrets",
}
MAX_LINES = 600  # a longer file is two files


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    allowed = ALLOWED.get(package(path))
    if allowed is None:  # the public API and the commands see everything
        return
    for name in imports(path):
        if name == "unisono" or name.startswith("unisono."):
            wanted = name.removeprefix("unisono").removeprefix(".")
            fine = any(wanted == a or wanted.startswith(f"{a}.") for a in allowed)
            assert fine or (
                wanted.split(".")[0] in {"experiments"} and package(path) == "experiments"
            ), f"{path.name} must not import {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_the_core_is_pure(path: Path) -> None:
    if not any(path.is_relative_to(SOURCE / pure) for pure in PURE):
        return
    used = {name.split(".")[0] for name in imports(path)}
    assert not used & IMPURE, f"{path.name} imports {used & IMPURE}"
    drawn = {name for name in imports(path) if name.split(".")[0] == "random"}
    assert drawn <= {"random.Random"}, "no global randomness: name the source"
    assert "np.random" not in path.read_text()


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules_are_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert ast.get_docstring(ast.parse(text)), f"{path.name} has no header"


def test_nothing_unpickles_or_evaluates() -> None:
    for path in MODULES:
        used = {name.split(".")[0] for name in imports(path)}
        assert not used & {"pickle", "marshal", "shelve"}, path
        calls = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & {"eval", "exec"}, path


def test_the_default_install_is_enough_to_import_and_simulate() -> None:
    """Optional packages are imported where they are used, not with the package."""
    import subprocess
    import sys

    code = (
        "import sys\n"
        "optional = 'pyspark pyarrow nats numpy numba matplotlib pandas cryptography uvloop'\n"
        "for name in optional.split():\n"
        "    sys.modules[name] = None\n"
        "import unisono\n"
        "from unisono.sim.run import run_scenario\n"
        "from unisono.sim.scenario import Scenario\n"
        "assert run_scenario(Scenario(name='x', nodes=10), 1).verdict == 'valid'\n"
        "import unisono.cli.main as main\n"
        "main.parser()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
