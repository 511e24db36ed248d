"""A real cluster of Spark's own kind: a master and two workers, each with an address of its own.

Spark runs a task beside itself on another host only, and never in its local mode. So the workers
listen on two addresses of this machine, which Spark takes for two hosts.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyspark
from child import Child
from eventually import eventually
from ports import HOST

HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.2", "127.0.0.3")
START_S = 180.0
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Daemon(Child):
    """One of a cluster's processes, which is ready when its log says so."""

    def __init__(self, name: str, folder: Path, host: str, ready: str, *arguments: str) -> None:
        super().__init__(name, folder, None)
        self._ready = ready
        self._settings = {
            "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK, "SPARK_LAUNCHER_OPTS": QUICK,
        }  # fmt: skip
        self._arguments = [
            f"org.apache.spark.deploy.{name}", "--host", host, "--port", str(self.port),
            "--webui-port", "0", *arguments,
        ]  # fmt: skip
        self._start()

    def _command(self) -> list[str]:
        settings = [f"{name}={value}" for name, value in self._settings.items()]
        return ["env", *settings, str(HOME / "bin" / "spark-class"), *self._arguments]

    def _is_ready(self) -> bool:
        return self._ready in self.log.read_text(encoding="utf-8", errors="replace")

    def _wait_until_ready(self) -> None:
        """Waits longer than for servers: each is a JVM."""
        eventually(lambda: self._is_ready() or not self.is_running, within=START_S)
        assert self.is_running, self._tail()


class SparkCluster:
    """A master and two workers of two cores; they die with the tests, and executors with them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            master = Daemon("master.Master", self._folder / "master", HOST, "New state: ALIVE")
            starting.enter_context(master)
            self.url = f"spark://{HOST}:{master.port}"
            for host in HOSTS:
                folder = self._folder / host
                worker = Daemon(
                    "worker.Worker", folder, host, "Successfully registered with master",
                    "--cores", "2", "--memory", "1g", "--work-dir", str(folder), self.url,
                )  # fmt: skip
                starting.enter_context(worker)
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
