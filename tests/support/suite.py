"""A run of the suite as a whole: where its files go, what it left behind, what it tells at the end.

All temporary files of a run are in one folder, which goes with it unless a test failed. Processes
are known by that folder, as they inherit its name. What still runs when the tests are done, or
lies in the folder's place for other programs, makes the run fail.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_MARK = "UNISONO_TEST_RUN"
_PATIENCE_S = 20.0
ROOT = Path(__file__).parents[2]


# A session of Spark gets faster with what it has done before: few parts share a few of them.
_SHARED = (
    ("tests/pipeline/", "tests/parity/test_checks", "tests/parity/test_seeds"),
    (
        "tests/spark/",
        "tests/cases/test_trading",
        "tests/test_examples.py",
        "tests/processes/",
        "tests/cli/test_audit_cli",
        "tests/cli/test_cli",
        "tests/cli/test_reproduce",
    ),
)


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """What shares a session of Spark is run by one worker, from the beginning; of the other tests
    each worker takes the next one."""

    def _split_scope(self, nodeid: str) -> str:
        shared = [str(number) for number, parts in enumerate(_SHARED) if nodeid.startswith(parts)]
        return shared[0] if shared else nodeid


class Suite:
    """A plugin of pytest, in the process that the user started."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._seconds: dict[str, float] = defaultdict(float)
        self._tests: dict[str, set[str]] = defaultdict(set)
        self._failed: list[str] = []
        self._skipped: Counter[str] = Counter()
        self._left: list[str] = []
        self.folder = Path(tempfile.mkdtemp(prefix="unisono-tests-"))
        self._before = {name: os.environ.get(name) for name in self._environment()}
        os.environ.update(self._environment())
        tempfile.tempdir = None  # ask the environment again

    def _environment(self) -> dict[str, str]:
        """For this process, its workers, and whatever they start."""
        java = f"-Djava.io.tmpdir={self.folder} -XX:-UsePerfData"
        return {
            _MARK: str(self.folder),
            "TMPDIR": str(self.folder),
            "PYTEST_DEBUG_TEMPROOT": str(self.folder),
            "SPARK_LOCAL_DIRS": str(self.folder),
            "SPARK_SUBMIT_OPTS": java,
            "SPARK_DAEMON_JAVA_OPTS": java,
        }

    def pytest_xdist_make_scheduler(
        self, config: pytest.Config, log: Producer
    ) -> LoadScopeScheduling:
        return _Scheduling(config, log)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        part = part_of(name)
        self._seconds[part] += report.duration
        self._tests[part].add(name)
        if report.failed and name not in self._failed:
            self._failed.append(name)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.longrepr[2]] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The workers have ended."""
        left = still_running(str(self.folder))
        until = time.monotonic() + _PATIENCE_S
        while left and time.monotonic() < until:  # an end takes a moment
            time.sleep(0.05)
            left = still_running(str(self.folder))
        self._left = [f"process {pid}: {command}" for pid, command in left.items()]
        if self._left and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("time by part")
        for part, seconds in sorted(self._seconds.items(), key=lambda one: -one[1]):
            write(f"{seconds:7.1f} s  {len(self._tests[part]):5} tests  {part}")
        write(f"{time.monotonic() - self._begun:7.1f} s  in all, in several workers at once")
        for reason, count in self._skipped.items():
            write(f"skipped {count}: {reason}", yellow=True)
        if not self._skipped:
            write("nothing was skipped")
        for line in self._left:
            write(f"left behind: {line}", red=True)
        if self._failed:
            terminalreporter.section("to run again what failed")
            for name in self._failed:
                write(f".venv/bin/python -m pytest {shlex.quote(name)}", red=True)
            write(f"its files are in {self.folder}")

    def pytest_unconfigure(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        tempfile.tempdir = None
        if not self._failed:
            shutil.rmtree(self.folder, ignore_errors=True)


def part_of(name: str) -> str:
    """The folder under tests, or the file if it is in none."""
    return "/".join(name.partition("::")[0].split("/")[:2])


def still_running(mark: str) -> dict[int, str]:
    """Other processes that were started with this mark in their environment."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*") if Path("/proc").is_dir() else ():
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            if f"{_MARK}={mark}".encode() not in environment or int(entry.name) == os.getpid():
                continue
            found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended, or is not ours
            continue
    return found
