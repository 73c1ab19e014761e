"""What `make test` runs: lint, types and tests, of all or of one part.

python tests/check.py                  everything
python tests/check.py qos              the package src/unisono/qos and its tests
python tests/check.py qos/fifo/layer   a file; its tests are those nearest to its name
python tests/check.py tests/net/test_udp.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src/unisono"
TESTS = ROOT / "tests"
BIN = Path(sys.executable).parent


def sources_of(part: Path) -> list[Path]:
    """The package or the file of this name below src/unisono."""
    found = [SOURCES / part, (SOURCES / part).with_suffix(".py")]
    return [path for path in found if path.exists()][:1]


def tests_of(part: Path) -> list[Path]:
    """The folder of this name, else the file nearest to it, else the folder it is in, else what
    imports it."""
    stem = part.with_suffix("")
    above = [folder for folder in stem.parents if folder != Path()]
    near = [TESTS / stem, *(TESTS / folder / f"test_{stem.name}.py" for folder in stem.parents)]
    for path in [*near, *(TESTS / folder for folder in above)]:
        if path.exists():
            return [path]
    module = ".".join(("unisono", *stem.parts))
    return [path for path in sorted(TESTS.rglob("test_*.py")) if module in path.read_text()]


def paths_of(room: str) -> tuple[list[Path], list[Path]]:
    """What to lint and check, and what to run, of a part as the user wrote it."""
    path = (ROOT / room).resolve()
    if path.exists() and path.is_relative_to(TESTS):
        return [path], [path]
    if path.exists() and path.is_relative_to(SOURCES):
        part = path.relative_to(SOURCES)
    else:
        part = Path(room.removeprefix("unisono.").replace(".py", "").replace(".", "/"))
    if not sources_of(part) and not (TESTS / part).exists():
        parts = sorted(one.name for one in SOURCES.iterdir() if (one / "__init__.py").exists())
        raise SystemExit(f"there is no part {room!r}; the parts are {', '.join(parts)}")
    tests = tests_of(part)
    return [*sources_of(part), *tests], tests


def workers() -> int:
    """Two more than there are cores: some tests wait for other processes."""
    return len(os.sched_getaffinity(0)) + 2


def main(room: str) -> int:
    begun = time.monotonic()
    code, tests = paths_of(room) if room else ([], [])
    os.chdir(ROOT)
    os.environ["PYTHONHASHSEED"] = "0"  # every run iterates over sets alike
    lint = [str(path) for path in code] or ["."]
    for command in (["check", *lint], ["format", "--check", *lint]):
        if subprocess.run([BIN / "ruff", "--quiet", *command]).returncode:
            return 1
    types = subprocess.Popen(
        [BIN / "mypy", *map(str, code)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    slowest = ["--durations=25", "--durations-min=5"]
    parallel = ["-n", str(workers()), "--dist", "loadscope"]
    pytest = [sys.executable, "-m", "pytest", *parallel, *slowest, *map(str, tests)]
    try:
        failed = subprocess.run(pytest).returncode
    finally:
        if sys.exc_info()[0] is not None:
            types.terminate()
        said, _ = types.communicate()
    print(said, end="")
    print(f"lint, types and tests: {time.monotonic() - begun:.1f} s")
    return 1 if failed or types.returncode else 0


if __name__ == "__main__":
    if len(sys.argv) > 2:
        raise SystemExit("usage: check.py [part]")
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
