"""Everything under examples/ runs, on both buses; so does the Python of the documents."""

from __future__ import annotations

import io
import os
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.servers import NatsServer
from support.streams import end_collector

from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace

ROOT = Path(__file__).parents[1]
_PATIENCE_S = 120
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        env={**os.environ, "PYTHONWARNINGS": "error::RuntimeWarning"},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def run_here(spark: SparkSession, script: Path, *arguments: str) -> str:
    """In this process, with the session of all tests, which outlives the script and is afterwards
    as it was. Paths are absolute: its Java is in another folder."""
    before = spark.conf.getAll
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.setattr(SparkSession, "stop", lambda session: None)
        patch.setattr(sys, "argv", [str(script), *arguments])
        runpy.run_path(str(script), run_name="__main__")
    for name, value in spark.conf.getAll.items():
        if name not in before:
            spark.conf.unset(name)
        elif value != before[name]:
            spark.conf.set(name, before[name])
    return said.getvalue()


@pytest.fixture(params=["memory", "nats"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory://"
    server: NatsServer = request.getfixturevalue("nats_server")
    return server.url


def test_replicas_end_equal(url: str, tmp_path: Path) -> None:
    assert "equal: True" in run([str(ROOT / "examples" / "replicas.py"), url], tmp_path)


def test_an_audited_run_is_valid(url: str, tmp_path: Path, spark: SparkSession) -> None:
    run([str(ROOT / "examples" / "audited.py"), url, "traced"], tmp_path)
    report = audit(spark, open_trace(spark, tmp_path / "traced"))
    assert report.verdict == "valid"
    assert report.rows["deliveries"] == 200 + 133
    assert report.checks["losses"].violations == 0


def test_alerts_come_back(nats_server: NatsServer, tmp_path: Path, spark: SparkSession) -> None:
    script = ROOT / "examples" / "spark" / "alerts.py"
    try:
        said = run_here(spark, script, nats_server.url, str(tmp_path))
    finally:
        end_collector(tmp_path / "journal")  # it would linger
    assert said.count("prices.MSFT is at 109") == 10


def test_latencies_of_a_trace(tmp_path: Path, spark: SparkSession) -> None:
    run([str(ROOT / "examples" / "audited.py"), "memory://", "traced"], tmp_path)
    script = ROOT / "examples" / "spark" / "latencies.py"
    said = run_here(spark, script, str(tmp_path / "traced"))
    assert "longest_ms" in said
    assert (said.count("|67 "), said.count("|66 ")) == (3, 2)  # of 200 events on three topics


FOREIGN = {  # what the audit of each sample finds
    "kafka.py": {
        "total-order": ["orders/0/42", "payments/0/7"],
        "global-order": ["orders/0/42", "payments/0/7"],
        "duplicates": "payments/0/8",
    },
    "nats.py": {
        "total-order": ["MARKET/12", "MARKET/13"],
        "global-order": ["MARKET/12", "MARKET/13"],
        "causal-order": ["MARKET/14", "MARKET/12"],
        "fifo": ["MARKET/14", "MARKET/12"],
    },
    "mqtt.py": {"losses": "d1-2"},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_logs_are_audited(name: str, tmp_path: Path, spark: SparkSession) -> None:
    run([str(ROOT / "examples" / "foreign" / name), "logs"], tmp_path)
    report = audit(spark, open_trace(spark, tmp_path / "logs" / "trace"))
    witnesses = {check: told.witness for check, told in report.checks.items() if told.witness}
    found = {check: of.get("event", of.get("events")) for check, of in witnesses.items()}
    assert found == FOREIGN[name]


def test_every_example_is_run_by_a_test() -> None:
    here = Path(__file__).read_text()
    for example in (ROOT / "examples").rglob("*.py"):
        assert example.name in here, f"add a test that runs {example.name}"


def snippets() -> list[tuple[str, str]]:
    found = []
    for document in DOCUMENTS:
        blocks = re.findall(r"```python\n(.*?)```", document.read_text(), re.S)
        found += [(f"{document.name}-{index}", block) for index, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize(("name", "code"), snippets(), ids=[name for name, _ in snippets()])
def test_python_in_the_documents_runs(name: str, code: str, tmp_path: Path) -> None:
    """As processes: one of them uses Spark, with a Java of its own."""
    script = tmp_path / f"{name}.py"
    script.write_text(code)
    run([str(script)], tmp_path)


def test_fragments_in_the_documents_are_of_examples_that_run() -> None:
    examples = "\n".join(path.read_text() for path in (ROOT / "examples").rglob("*.py"))
    for document in DOCUMENTS:
        for block in re.findall(r"```py\n(.*?)```", document.read_text(), re.S):
            assert block in examples, f"{document.name}: {block}"


def test_the_readme_has_an_example() -> None:
    assert any(name.startswith("README.md") for name, _ in snippets())
