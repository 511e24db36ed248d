"""A MariaDB of the benchmark's own: on a free port, durable as by default, ended at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from typing import Self

import pymysql

from benchmarks.redis_server import free_port

STARTS_WITHIN_S = 30


class MariaDbServer:
    """A context in which the server runs."""

    def __enter__(self) -> Self:
        program, installer = map(shutil.which, ("mariadbd", "mariadb-install-db"))
        if program is None or installer is None:
            raise SystemExit("MariaDB is not installed; its benchmarks start their own")
        self.port = free_port()
        self._folder = tempfile.mkdtemp(prefix="qframe-bench-")
        where = [f"--datadir={self._folder}/data", f"--tmpdir={self._folder}"]
        where.append(f"--user={pwd.getpwuid(os.geteuid()).pw_name}")
        subprocess.run(
            [installer, "--no-defaults", "--skip-test-db", *where,
             "--auth-root-authentication-method=normal"],
            check=True, stdout=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        self._process = subprocess.Popen(
            [program, "--no-defaults", *where, f"--port={self.port}", "--bind-address=127.0.0.1",
             f"--socket={self._folder}/socket", "--skip-log-bin", "--skip-name-resolve",
             "--innodb-buffer-pool-size=256M", "--innodb-log-file-size=512M"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)
        shutil.rmtree(self._folder, ignore_errors=True)

    def new_database(self) -> str:
        """Makes an empty database; answers its URL."""
        name = f"bench_{uuid.uuid4().hex[:12]}"
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/{name}"

    def _connect(self) -> pymysql.connections.Connection:
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True)

    def _wait(self) -> None:
        ends = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                self._connect().close()
            except pymysql.OperationalError:
                if self._process.poll() is not None or time.monotonic() > ends:
                    raise SystemExit("MariaDB did not start") from None
                time.sleep(0.05)
            else:
                return
