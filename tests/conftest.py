"""Fixtures of the whole suite, and its rules: the same every time, nothing left behind.

Spark is imported only by what asks for the session. It takes seconds to start and serves all tests
of a worker.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from support.servers import NatsServer
from support.suite import Suite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What is drawn depends on the test alone; `make fuzz` draws anew. Tests do not judge time.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # judges the machine, not the code
)
settings.register_profile("long", settings.get_profile("suite"))
settings.register_profile("fuzz", settings.get_profile("suite"), derandomize=False)
_PROFILE = os.environ.get("UNISONO_PROFILE", "suite")
settings.load_profile(_PROFILE)
if _PROFILE != "fuzz":
    # It would draw constants of whatever modules of ours this worker has loaded by then.
    providers._get_local_constants = lambda: providers._local_constants


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # once a run, not once a worker
        config.pluginmanager.register(Suite(), "unisono-suite")


@pytest.hookimpl(tryfirst=True)  # before marks are asked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs Spark. With UNISONO_SHUFFLE, a seed, the order is random."""
    for item in items:
        if isinstance(item, pytest.Function) and "spark" in item.fixturenames:
            item.add_marker("spark")
    seed = os.environ.get("UNISONO_SHUFFLE")
    if seed:
        Random(seed).shuffle(items)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session for small data: one partition, and plans that are not made anew as they run, nor
    compiled. Commands that start a session of their own have all that."""
    from unisono.pipeline.session import end_session, spark_session

    session = spark_session("unisono tests", shuffle_partitions=1)
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    end_session(session)


@pytest.fixture
def nats_server() -> Iterator[NatsServer]:
    """A real nats-server on a free port, ended with the test."""
    server = NatsServer()
    server.start()
    yield server
    server.kill()
