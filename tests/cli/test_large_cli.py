"""The large experiments and `bench sim` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from unisono.bench import sim
from unisono.cli.main import main

FIGURES = {
    "hops_per_s": {"columnar": 100, "objects": 4, "simpy": 2},
    "columnar_over_simpy": 50.0,
    "objects_over_simpy": 2.0,
    "fig_3_18": {"events": 500, "notifications": 4_000_000, "process_s": 10.0, "peak_gib": 0.3},
    "targets": {
        "columnar_over_simpy_min": 20.0,
        "objects_over_simpy_min": 1.0,
        "fig_3_18_s_max": 60.0,
        "fig_3_18_gib_max": 4.0,
    },
}


@pytest.mark.parametrize("met", [True, False])
def test_bench_sim_exits_by_its_targets(
    met: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(runs: int, remark: Any) -> dict[str, Any]:
        assert runs == 2
        return {"machine": {"cores": 1}, "sim": {**FIGURES, "met": met}}

    monkeypatch.setattr(sim, "run", measured)
    assert main(["bench", "sim", "--runs", "2", "--json"]) == (0 if met else 1)
    told = json.loads(capsys.readouterr().out)
    assert told["machine"] == {"cores": 1} and told["sim"]["columnar_over_simpy"] == 50.0
    main(["bench", "sim", "--runs", "2"])
    assert "4,000,000 notifications in 10.0 s" in capsys.readouterr().out


@pytest.mark.slow  # that runs are shared, `tests/pipeline/test_sweep.py` sees
def test_figures_of_the_same_runs_share_them(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["reproduce", "fig-3.18", "fig-3.19", "--quick", "--json", "--out", str(tmp_path)])
    latency, stamps = json.loads(capsys.readouterr().out)["experiments"]
    runs = spark.read.parquet(str(tmp_path / "runs"))
    assert {row["experiment"] for row in runs.collect()} == {"fig-3.18"}
    assert runs.count() == latency["runs"] == stamps["runs"] == 10
    assert latency["table"] == stamps["table"] and latency["claims"] != stamps["claims"]
    table = {row["setting"]: row for row in latency["table"]}
    random, dynamic = table["random-static"], table["dynamic-window"]
    assert dynamic["late_latency_s_mean"] < random["late_latency_s_mean"] / 2
    assert Path(latency["plot"]).is_file() and Path(stamps["plot"]).is_file()
