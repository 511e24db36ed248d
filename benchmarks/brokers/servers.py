"""The brokers' servers, each on a free port with a folder of its own; killed at the end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.postgres_server import PostgresServer
from benchmarks.redis_server import free_port

STARTS_WITHIN_S = 120
PATHS = (*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/usr/lib/rabbitmq/bin")
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # Debian's wrapper has folders of its own


class NotHere(Exception):
    """A broker cannot be run here; the text says why."""


@dataclass
class Running:
    """A server that runs: what a client connects to, and the processes whose CPU counts."""

    url: str
    version: str
    pid: int = 0

    def cpu_s(self) -> float:
        """Seconds of CPU that it and its children have used."""
        return sum(map(_cpu_s, _family(self.pid))) if self.pid else 0.0


@contextmanager
def rabbitmq() -> Iterator[Running]:
    """RabbitMQ; it confirms a persistent message once its store has written it to the disk."""
    if not RABBITMQ.exists():
        raise NotHere("it is not installed: apt-get install rabbitmq-server")
    with _folder() as folder:
        port, nodes, between = free_port(), free_port(), free_port()
        (folder / "plugins").write_text("[].", encoding="ascii")
        environment = os.environ | {
            "HOME": str(folder), "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(between), "ERL_EPMD_PORT": str(nodes),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"), "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        }  # fmt: skip
        try:
            with _process([str(RABBITMQ)], port, environment) as process:
                version = _said("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server")
                yield Running(f"amqp://guest:guest@127.0.0.1:{port}/", version, process.pid)
        finally:  # Erlang's list of nodes is a daemon
            subprocess.run(
                [_program("epmd"), "-port", str(nodes), "-kill"],
                stdout=subprocess.DEVNULL, check=False,
            )  # fmt: skip


@contextmanager
def nats() -> Iterator[Running]:
    """NATS with JetStream in files."""
    program = _program("nats-server")
    with _folder() as folder:
        port = free_port()
        command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
        with _process(command, port) as process:
            version = _said(program, "--version").rpartition("v")[2]
            yield Running(f"nats://127.0.0.1:{port}", version, process.pid)


@contextmanager
def beanstalkd(sync_ms: int) -> Iterator[Running]:
    """beanstalkd with a log, put to the disk so often; 0: before each reply."""
    program = _program("beanstalkd")
    with _folder() as folder:
        port = free_port()
        command = [program, "-l", "127.0.0.1", "-p", str(port), "-b", str(folder)]
        with _process([*command, f"-f{sync_ms}"], port) as process:
            version = _said(program, "-v").split()[-1]
            yield Running(f"127.0.0.1:{port}", version, process.pid)


@contextmanager
def redis(fsync: str) -> Iterator[Running]:
    """Redis with an append-only file, put to the disk `always` or `everysec`."""
    program = _program("redis-server")
    with _folder() as folder:
        port = free_port()
        command = [
            program, "--port", str(port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "yes", "--appendfsync", fsync, "--dir", str(folder),
        ]  # fmt: skip
        with _process(command, port) as process:
            version = _said(program, "--version").split("v=")[1].split()[0]
            yield Running(f"redis://127.0.0.1:{port}", version, process.pid)


@contextmanager
def postgres() -> Iterator[Running]:
    """PostgreSQL, which puts each commit to the disk."""
    with PostgresServer() as server:
        url = server.new_database().replace("postgresql:", "postgresql+psycopg:")
        yield Running(url, server.version, server.pid)


@contextmanager
def sqlite(synchronous: str) -> Iterator[Running]:
    """A file of SQLite's; there is no server."""
    with _folder() as folder:
        yield Running(f"sqlite:///{folder / 'q.db'}?synchronous={synchronous}", "")


@contextmanager
def _process(
    command: list[str], port: int, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from when it listens; ended with all that it has started."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        _wait(process, port)
        yield process
    finally:
        family = _family(process.pid)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in family:  # Erlang's children leave the group
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    ends = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > ends:
                raise NotHere(f"{process.args} did not start") from None
            time.sleep(0.05)
        else:
            return


@contextmanager
def _folder() -> Iterator[Path]:
    folder = tempfile.mkdtemp(prefix="qframe-bench-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    found = shutil.which(name, path=":".join(PATHS))
    if found is None:
        raise NotHere(f"it is not installed: apt-get install {name}")
    return found


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip()


def _family(pid: int) -> list[int]:
    """A process and all that it has started, and so on."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def _cpu_s(pid: int) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, stat[11:13])) / os.sysconf("SC_CLK_TCK")
