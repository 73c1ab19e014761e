"""Fixtures of the whole suite. One Spark session serves all: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from support.servers import NatsServer

from unisono.pipeline.session import spark_session

settings.register_profile("suite", deadline=None)  # tests do not judge time
settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several workers: all that needs the Spark session runs in one, else a file in one."""
    for item in items:
        needs_spark = isinstance(item, pytest.Function) and "spark" in item.fixturenames
        group = "spark" if needs_spark else item.path.as_posix()
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("unisono tests", shuffle_partitions=1)
    yield session
    session.stop()


@pytest.fixture
def nats_server() -> Iterator[NatsServer]:
    """A real nats-server on a free port, ended with the test."""
    server = NatsServer()
    server.start()
    yield server
    server.kill()
