"""A Spark cluster of real processes on loopback: a master, workers, and a Python for executors that
has all that our package needs, but not our package."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

from support.servers import free_port
from support.streams import wait_for
from unisono.pipeline.java import find_java, launch_home


class Cluster:
    """`with Cluster(folder) as cluster`: two workers with a core each."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self._port, self._page = free_port(), free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        return self._processes[1:]

    def environment(self) -> dict[str, str]:
        """For drivers."""
        return os.environ | {
            "PYSPARK_PYTHON": str(self._folder / "python" / "bin" / "python"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def __enter__(self) -> Cluster:
        self._make_python()
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(self._port),
                    "--webui-port", str(self._page))  # fmt: skip
        for number in range(self._count):
            self._start("worker.Worker", "--cores", "1", "--memory", "2g", "--webui-port",
                        str(free_port()), "-d", str(self._folder / f"worker-{number}"),
                        self.url)  # fmt: skip
        wait_for(lambda: self.state().get("aliveworkers") == self._count)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            self.kill(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """With its executors: a machine that fails."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def state(self) -> dict[str, Any]:
        """What the master says."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/") as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    def shuffled(self, worker: int) -> bool:
        """The worker has made something that others need."""
        return any((self._folder / f"scratch-{worker + 1}").rglob("shuffle_*.data"))

    def running(self) -> bool:
        """An application has executors on every worker."""
        busy = [worker for worker in self.state().get("workers", ()) if worker["coresused"]]
        return len(busy) == self._count

    def _start(self, role: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "JAVA_HOME": str(launch_home(find_java())),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / f"scratch-{len(self._processes)}"),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with (self._folder / f"{role}-{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [home / "bin" / "spark-class", f"org.apache.spark.deploy.{role}", *arguments],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _make_python(self) -> None:
        """A folder that is only named in a .pth file has its own .pth files ignored: an editable
        installation of our package is not seen."""
        folder = self._folder / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        named = folder / "lib" / version / "site-packages" / "needed.pth"
        named.write_text(sysconfig.get_paths()["purelib"] + "\n")
        shown = subprocess.run([folder / "bin" / "python", "-c", "import unisono"], check=False,
                               capture_output=True, env={"PATH": os.environ["PATH"]})  # fmt: skip
        assert b"No module named 'unisono'" in shown.stderr
