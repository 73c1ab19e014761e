"""The one place where Spark sessions come from.

Local mode by default: every core, a task may fail three times before the job does, no web page,
no log noise, nothing listening beyond this machine. `master` takes any other Spark master; our
package is shipped to its executors, whose Python (PYSPARK_PYTHON) must have what it needs
(docs/cluster.md). The flags favour commands that live for seconds (serial
collector); what they cost long jobs is told where the flag is set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unisono.errors import EnvironmentLacks
from unisono.pipeline.java import Java, class_archive, find_java, launch_home
from unisono.pipeline.shipping import package_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def cores() -> int:
    """The cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spark_session(
    app: str,
    master: str | None = None,
    shuffle_partitions: int | None = None,
    driver_memory: str = "2g",
    java: Java | None = None,
    quick: bool = True,
) -> SparkSession:
    """The Spark session of this process: a new one, or the one that is already there.

    `shuffle_partitions` defaults to the number of cores. `quick` keeps the virtual machine to its
    first compiler: jobs of seconds start faster, jobs of minutes run slower.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise EnvironmentLacks(
            f"PySpark cannot be imported ({error}): pip install 'unisono[spark]'"
        ) from error

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    java = java or find_java()
    master = master or f"local[{cores()},3]"
    settings = {
        "spark.driver.memory": driver_memory,
        "spark.sql.shuffle.partitions": str(shuffle_partitions or cores()),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # asks Java four things per column
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.python.daemon.module"] = "unisono.pipeline.daemon"
    else:
        settings["spark.submit.pyFiles"] = str(package_zip())
    with _launch_environment(java, local=master.startswith("local"), quick=quick):
        builder = SparkSession.builder.appName(app).master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            return builder.getOrCreate()
        except Exception as error:  # the gateway raises bare exceptions of several kinds
            reason = str(error).strip().splitlines()
            raise EnvironmentLacks(
                f"Spark did not start with Java {java.version} of {java.home} on {master}: "
                f"{reason[0] if reason else type(error).__name__}"
            ) from error


def end_session(spark: SparkSession) -> None:
    """Stop it, and wait until its Java has ended."""
    from pyspark import SparkContext

    spark.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None


def _executors_python(local: bool) -> str:
    """On a cluster, the user's to say."""
    given = None if local else os.environ.get("PYSPARK_PYTHON")
    return given or sys.executable


@contextmanager
def _launch_environment(java: Java, local: bool, quick: bool) -> Iterator[None]:
    """Set what the Java process reads while it is started, and put everything back after."""
    given = os.environ.get("SPARK_SUBMIT_OPTS")
    options = [
        "-XX:+UseSerialGC",
        "-XX:ReservedCodeCacheSize=240m",  # the first compiler's 48 are full after 50 audits
        *(["-XX:TieredStopAtLevel=1"] if quick else []),
        f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
    ]
    archive = class_archive(java)
    if archive.exists() and "-XX:ArchiveClassesAtExit" not in (given or ""):
        # Java ignores an archive that is not of these very files; no need to say so.
        options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    wanted = {
        "JAVA_HOME": str(launch_home(java)),
        "SPARK_SUBMIT_OPTS": " ".join([*options, given] if given else options),
        "PYSPARK_PYTHON": _executors_python(local),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    if local:
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
