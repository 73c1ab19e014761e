"""The package that executors get: all of it can be imported from the one file, without ours."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from unisono.pipeline.shipping import package_zip

EXECUTED = (
    "import unisono, unisono.pipeline.audit, unisono.pipeline.sweep, unisono.spark\n"
    "import unisono.experiments.registry as registry\n"
    "print(len(registry.registry()), unisono.__file__)"
)


def test_executors_import_what_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the packages that ours needs on the path, but without ours."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shipped = package_zip()
    assert package_zip() == shipped, "the same content is made once"
    assert list(shipped.parent.iterdir()) == [shipped], "nothing is left beside it"
    assert shipped.parent.stat().st_mode & 0o077 == 0, "nobody else may put a package there"
    found = subprocess.run(
        [sys.executable, "-S", "-c", EXECUTED],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(shipped), sysconfig.get_paths()["purelib"]])},
    )
    assert found.returncode == 0, found.stderr
    experiments, file = found.stdout.split()
    assert int(experiments) > 30 and file == f"{shipped}/unisono/__init__.py"


def test_scenarios_and_settings_are_shipped_too() -> None:
    with zipfile.ZipFile(package_zip()) as packed:
        names = set(packed.namelist())
    assert {"unisono/py.typed", "unisono/pipeline/log4j2.properties"} <= names
    assert not [name for name in names if "__pycache__" in name]
