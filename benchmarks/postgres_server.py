"""A PostgreSQL of the benchmark's own: on a free port, durable as by default, ended at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg

from benchmarks.redis_server import free_port

STARTS_WITHIN_S = 30
HOMES = Path("/usr/lib/postgresql")
USER = "postgres"


class PostgresServer:
    """A context in which the server runs.

    Args:
        folder: where its data is put; by default a temporary place.
        fsync: `on` or `off`: whether it waits for the disk.
    """

    def __init__(self, folder: str | None = None, fsync: str = "on") -> None:
        self._folder = folder
        self._fsync = fsync

    def __enter__(self) -> Self:
        found = sorted(HOMES.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
        program = str(found[-1]) if found else shutil.which("postgres")
        if program is None:
            raise SystemExit("PostgreSQL is not installed; its benchmarks start their own")
        self.port = free_port()
        self._data = tempfile.mkdtemp(prefix="qframe-bench-", dir=self._folder)
        before = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam(USER)
            shutil.chown(self._data, USER, USER)
            before = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}",
                      "--clear-groups", "--pdeathsig=KILL"]  # fmt: skip
        subprocess.run(
            [*before, str(Path(program).parent / "initdb"), "-D", self._data, "-U", "qframe",
             "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"],
            check=True, stdout=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        self._process = subprocess.Popen(
            [*before, program, "-D", self._data, "-p", str(self.port),
             "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
             "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB",
             "-c", f"fsync={self._fsync}", "-c", f"full_page_writes={self._fsync}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)
        shutil.rmtree(self._data, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Its first process."""
        return self._process.pid

    @property
    def version(self) -> str:
        """Its version."""
        with self._connect() as connection:
            return str(connection.info.server_version // 10000)

    def cpu_s(self) -> float:
        """Seconds of CPU that the backends of its clients have used; its own chores do not count.

        Those that have ended count as a whole, which the server's system keeps for it.
        """
        ticks = sum(_times(self._process.pid)[2:])
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        for child in map(int, children.split()):
            with suppress(OSError):  # it has just ended
                if b"postgres: qframe" in Path(f"/proc/{child}/cmdline").read_bytes():
                    ticks += sum(_times(child))
        return ticks / os.sysconf("SC_CLK_TCK")

    def new_database(self) -> str:
        """Makes an empty database; answers what libpq calls its URI."""
        name = f"bench_{uuid.uuid4().hex[:12]}"
        with self._connect() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return f"postgresql://qframe@127.0.0.1:{self.port}/{name}"

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            f"postgresql://qframe@127.0.0.1:{self.port}/postgres", autocommit=True
        )

    def _wait(self) -> None:
        ends = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                self._connect().close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > ends:
                    raise SystemExit("PostgreSQL did not start") from None
                time.sleep(0.05)
            else:
                return


def _times(pid: int) -> list[int]:
    """A process's ticks of user and system, and those of its children that have ended."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return [int(each) for each in stat[11:15]]
