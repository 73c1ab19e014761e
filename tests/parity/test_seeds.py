"""Many seeds as a Spark job give what they give one after the other."""

from __future__ import annotations

from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from unisono.pipeline.seeds import run_seeds
from unisono.sim.many import Totals, run_totals
from unisono.sim.scenario import load_scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def test_spark_gives_the_same_totals(spark: SparkSession) -> None:
    scenario = load_scenario(SCENARIOS / "total-order" / "static.toml")
    seeds = range(5, 17)

    def work(chunk: range) -> str:
        return msgspec.json.encode(run_totals(scenario, chunk)).decode()

    spread = Totals()
    done: list[int] = []
    for chunk, result in run_seeds(spark, seeds, work):
        done += chunk
        spread.add(msgspec.json.decode(result, type=Totals))
    assert done == list(seeds)
    assert spread == run_totals(scenario, seeds)
