"""A master, two workers and a driver, each a process: audits, sweeps and streams run there as they
do here, on a package that the driver ships; a worker that is killed loses nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.cluster import Cluster
from support.streams import wait_for

from unisono.bench.traces import write_trace
from unisono.core.events import Delivery, Status
from unisono.journal.journal import Journal
from unisono.pipeline.audit import audit
from unisono.pipeline.read import open_trace

TESTS = Path(__file__).parents[1]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with Cluster(folder) as started:
        yield started


def unisono(cluster: Cluster, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "unisono", *arguments, "--master", cluster.url, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env=cluster.environment(),
    )


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    told, _ = process.communicate(timeout=900)
    found: dict[str, Any] = json.loads(told)
    return found


def swap(trace: Path) -> None:
    """Two neighbours of one subscriber change places."""
    path = sorted((trace / "deliveries").glob("*.parquet"))[0]
    table = pq.read_table(path).to_pylist()
    first, second = [row for row in table if row["subscriber"] == table[0]["subscriber"]][:2]
    first["event_id"], second["event_id"] = second["event_id"], first["event_id"]
    schema = pq.read_schema(path)
    path.with_name(f".{path.name}.crc").unlink()
    pq.write_table(pa.Table.from_pylist(table, schema), path)


@pytest.mark.slow
def test_an_audit_on_two_workers(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    write_trace(spark, trace, 20_000)
    swap(trace)
    process = unisono(cluster, "audit", str(trace))
    found = result(process)
    assert process.returncode == 1
    assert found == json.loads(json.dumps(audit(spark, open_trace(spark, trace)).to_json()))
    assert found["checks"]["total-order"]["violations"] > 0


@pytest.mark.slow
def test_an_audit_whose_worker_is_killed(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    write_trace(spark, trace, 5_000_000)
    swap(trace)
    process = unisono(cluster, "audit", str(trace))
    wait_for(lambda: cluster.running() and cluster.shuffled(0))
    cluster.kill(cluster.workers[0])
    found = result(process)
    assert found == json.loads(json.dumps(audit(spark, open_trace(spark, trace)).to_json()))


@pytest.mark.slow
def test_a_sweep_whose_worker_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    here = subprocess.run(
        [sys.executable, "-m", "unisono", "reproduce", "fig-3.21", "--quick", "--json",
         "--out", str(tmp_path / "here")],
        stdout=subprocess.PIPE,
        check=False,
    )  # fmt: skip
    process = unisono(cluster, "reproduce", "fig-3.21", "--quick", "--out", str(tmp_path / "there"))
    wait_for(cluster.running)
    cluster.kill(cluster.workers[1])
    there = result(process)
    (expected,) = json.loads(here.stdout)["experiments"]
    (found,) = there["experiments"]
    for there_row, here_row in zip(found["table"], expected["table"], strict=True):
        assert there_row == pytest.approx(here_row)
    assert [claim["verdict"] for claim in found["claims"]] == [
        claim["verdict"] for claim in expected["claims"]
    ]


@pytest.mark.slow
def test_a_stream_whose_worker_is_killed(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    with Journal(tmp_path / "journal") as journal:
        fill(journal, 0, 2000)
        process = subprocess.Popen(
            [sys.executable, "-m", "support.cluster_driver", cluster.url,
             str(tmp_path / "journal"), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=cluster.environment() | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        )  # fmt: skip
        assert process.stdout is not None
        assert "unisono.zip" in process.stdout.readline()
        assert process.stdout.readline() == "running\n"
        fill(journal, 2000, 20_000)
        cluster.kill(cluster.workers[0])
        fill(journal, 20_000, 30_000)
        process.communicate("done\n", timeout=600)
    assert process.returncode == 0
    found = spark.read.parquet(str(tmp_path / "found"))
    rows = found.orderBy("position").collect()
    assert [row.position for row in rows] == list(range(len(rows)))
    assert len(rows) >= 29_900  # the last may be held, for what may come before them
    assert {row.status for row in rows} <= {"in_order", "out_of_order", "gap_skipped"}
    assert sum(row.status == "in_order" for row in rows) > 25_000


def fill(journal: Journal, start: int, stop: int) -> None:
    """Numbers of three publishers; every tenth pair comes in the wrong order."""
    order = list(range(start, stop))
    for at in range(0, len(order) - 6, 30):
        order[at], order[at + 3] = order[at + 3], order[at]
    for at_ms, number in enumerate(order, start):
        journal.append(
            [
                Delivery(
                    topic="t",
                    payload=b"",
                    status=Status.IN_ORDER,
                    id=f"p-{number}",
                    publisher=f"p{number % 3}",
                    position=number,
                    published_us=number * 1000,
                    delivered_us=at_ms * 1000 + 5000 + number % 7 * 100,
                    attributes={"n": number // 3},
                )
            ]
        )
        if at_ms % 500 == 0:
            journal.flush()
    journal.flush()
