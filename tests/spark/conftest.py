"""A bus, a home for journals, and what the tests of sources and sinks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.streams import end_collector

from unisono.bench.server import NatsServer
from unisono.spark import UnisonoSource

Events = Callable[..., DataFrame]  # the stream of topics a and b of a real bus, with options


@pytest.fixture
def streams(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(UnisonoSource)
    return spark


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Path]:
    """A folder for a journal; whoever collects into it is ended with the test."""
    folder = tmp_path / "journal"
    yield folder
    end_collector(folder)


@pytest.fixture
def events(streams: SparkSession, nats_server: NatsServer, journal: Path) -> Events:
    """The stream of topics a and b of a real bus."""

    def load(**options: str) -> DataFrame:
        reader = streams.readStream.format("unisono").option("bus", nats_server.url)
        reader = reader.option("topics", "a,b").option("journal", str(journal))
        return reader.options(**options).load()

    return load
