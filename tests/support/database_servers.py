"""Real PostgreSQL and MariaDB for tests.

What they acknowledge they have written before, and do not wait for the disk: a killed one comes
back with all of it. Each server holds many databases; a test makes one of its own.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

import psycopg
import pymysql
from child import Child
from eventually import eventually
from ports import HOST
from programs import NotStarted, program

POSTGRES_MISSING = (
    "the tests need PostgreSQL 15 or newer: install it, e.g. apt-get install postgresql"
)
MARIADB_MISSING = (
    "the tests need MariaDB 10.6 or newer: install it, e.g. apt-get install mariadb-server"
)
POSTGRES_HOMES = Path("/usr/lib/postgresql")
# PostgreSQL refuses to run as root; Debian's package brings the first of these users.
POSTGRES_USERS = ("postgres", "nobody")


class PostgresServer(Child):
    """A PostgreSQL cluster with the superuser `qframe`, whom it trusts.

    Its data lie in a folder of their own, since those of tests are closed to other users.
    """

    STOP_SIGNAL = signal.SIGINT  # SIGTERM would wait for the clients to leave

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        config: dict[str, str] | None = None,
        data: Path | None = None,
    ) -> None:
        super().__init__("postgres", folder, port)
        self._bin = _postgres_bin()
        self._data = data or Path(tempfile.mkdtemp(prefix="qframe-postgres-"))
        self.config = {
            "listen_addresses": HOST, "unix_socket_directories": "", "port": str(self.port),
            "fsync": "off", "full_page_writes": "off", "max_connections": "200",
            # In its data's folder, where nothing is left of it: /dev/shm is everybody's.
            "dynamic_shared_memory_type": "mmap",
            "shared_buffers": "64MB", "logging_collector": "off",
        } | (config or {})  # fmt: skip
        if not (self._data / "PG_VERSION").exists():
            self._init()
        self._start()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql+psycopg://qframe@{HOST}:{self.port}/{database}"

    def call(self, text: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """What one statement answers, on a connection of its own."""
        with self._connect(database) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self) -> str:
        """Makes an empty database; answers its URL."""
        name = f"test_{uuid.uuid4().hex[:16]}"
        self.call(f'CREATE DATABASE "{name}"')
        return self.url_of(name)

    def standby(self, folder: Path) -> PostgresServer:
        """A server that follows this one, and has by now what this one has."""
        data = Path(tempfile.mkdtemp(prefix="qframe-postgres-"))
        give_to_postgres(data)
        source = f"host={HOST} port={self.port} user=qframe"
        words = ["-D", str(data), "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        _install("standby", [*_unprivileged(), str(self._bin / "pg_basebackup"), *words])
        return PostgresServer(folder, config={"hot_standby": "on"}, data=data)

    def catch_up(self, primary: PostgresServer) -> None:
        """Waits until a standby has received what its primary has by now."""
        [(position,)] = primary.call("SELECT pg_current_wal_flush_lsn()")
        received = f"SELECT pg_last_wal_receive_lsn() >= '{position}'"
        eventually(lambda: self.call(received) == [(True,)])

    def stop_following(self) -> None:
        """Has a standby receive nothing more from now on."""
        self.call("ALTER SYSTEM SET primary_conninfo = ''")
        self.call("SELECT pg_reload_conf()")
        eventually(lambda: not self.call("SELECT 1 FROM pg_stat_wal_receiver"))

    def promote(self) -> None:
        """Makes a standby a primary, which has what it has received."""
        self.call("SELECT pg_promote()")

    def kill(self) -> None:
        """Ends it and all its backends, as a crash would."""
        super().freeze()  # a backend that it starts now would be missed, and outlive it
        family = self._family()
        super().kill()
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # The next server refuses to start beside one that still holds the memory they shared.
        eventually(lambda: not any(map(_has_memory, family)))

    def remove(self) -> None:
        """Stops it for good, and removes its data."""
        self.stop()
        shutil.rmtree(self._data, ignore_errors=True)

    def freeze(self) -> None:
        super().freeze()
        for pid in self._family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        super().thaw()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.remove()

    def _connect(self, database: str) -> psycopg.Connection:
        return psycopg.connect(
            host=HOST, port=self.port, user="qframe", dbname=database, autocommit=True,
            connect_timeout=5,
        )  # fmt: skip

    def _init(self) -> None:
        give_to_postgres(self._data)
        words = ["-U", "qframe", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"]
        command = [*_unprivileged(), str(self._bin / "initdb"), "-D", str(self._data), *words]
        _install("postgres", command)

    def _command(self) -> list[str]:
        options = [word for item in self.config.items() for word in ("-c", "=".join(item))]
        return [*_unprivileged(), str(self._bin / "postgres"), "-D", str(self._data), *options]

    def _is_ready(self) -> bool:
        with suppress(psycopg.Error), self._connect("postgres"):
            return True
        return False

    def _family(self) -> list[int]:
        """The processes that it has started."""
        with suppress(OSError):
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii")
            return [int(each) for each in text.split()]
        return []


def _has_memory(pid: int) -> bool:
    """Whether a process lives: one that has ended, and nobody has asked for, has none."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


class MariaDbServer(Child):
    """A MariaDB server with the user `root`, who needs no password.

    Its temporary folder is its own, since a server that starts removes all temporary tables which
    it finds in its folder, be they another's in use.
    """

    def __init__(
        self, folder: Path, *, port: int | None = None, config: dict[str, str] | None = None
    ) -> None:
        super().__init__("mariadb", folder, port)
        self._data = self.folder / "data"
        # Here is its socket, too, whose path may have 107 bytes; those of tests are often longer.
        self._tmp = Path(tempfile.mkdtemp(prefix="qframe-mariadb-"))
        self.config = {
            "datadir": str(self._data), "port": str(self.port), "bind-address": HOST,
            "socket": str(self._tmp / "socket"), "pid-file": str(self.folder / "pid"),
            "tmpdir": str(self._tmp),
            "innodb-flush-log-at-trx-commit": "2", "innodb-buffer-pool-size": "64M",
            "innodb-log-file-size": "64M", "max-connections": "200", "skip-log-bin": "1",
            "skip-name-resolve": "1", "performance-schema": "0",
        } | (config or {})  # fmt: skip
        if not self._data.exists():
            self._init()
        self._start()

    @property
    def url(self) -> str:
        return self.url_of("mysql")

    def url_of(self, database: str) -> str:
        return f"mysql+pymysql://root@{HOST}:{self.port}/{database}"

    def call(self, text: str, database: str = "mysql") -> list[tuple[object, ...]]:
        """What one statement answers, on a connection of its own."""
        with self._connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    def new_database(self) -> str:
        """Makes an empty database; answers its URL."""
        name = f"test_{uuid.uuid4().hex[:16]}"
        self.call(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        return self.url_of(name)

    def standby(self, folder: Path) -> MariaDbServer:
        """A server that follows this one from its beginning, and has by now what this one has.

        This one needs `log-bin` among its settings.
        """
        server = MariaDbServer(folder, config={"server-id": "2", "read-only": "1"})
        source = f"MASTER_HOST='{HOST}', MASTER_PORT={self.port}, MASTER_USER='root'"
        server.call(f"CHANGE MASTER TO {source}, MASTER_USE_GTID = slave_pos")
        server.call("START SLAVE")
        server.catch_up(self)
        return server

    def catch_up(self, primary: MariaDbServer) -> None:
        """Waits until a standby has done what its primary has by now."""
        [(position,)] = primary.call("SELECT @@gtid_binlog_pos")
        assert self.call(f"SELECT MASTER_GTID_WAIT('{position}', 30)") == [(0,)]

    def stop_following(self) -> None:
        """Has a standby receive nothing more from now on."""
        self.call("STOP SLAVE")

    def promote(self) -> None:
        """Makes a standby a primary, which has what it has received."""
        self.call("STOP SLAVE")
        self.call("SET GLOBAL read_only = 0")

    def _connect(self, database: str) -> pymysql.connections.Connection:
        return pymysql.connect(
            host=HOST, port=self.port, user="root", database=database, autocommit=True,
            connect_timeout=5,
        )  # fmt: skip

    def _init(self) -> None:
        command = [
            program("mariadb-install-db", MARIADB_MISSING), "--no-defaults", "--skip-test-db",
            f"--datadir={self._data}", f"--tmpdir={self._tmp}",
            "--auth-root-authentication-method=normal", *_as_root(),
        ]  # fmt: skip
        _install("mariadb", command)

    def _command(self) -> list[str]:
        options = [f"--{name}={value}" for name, value in self.config.items()]
        found = program("mariadbd", MARIADB_MISSING)
        return [found, "--no-defaults", *_as_root(), *options]

    def _is_ready(self) -> bool:
        with suppress(pymysql.Error), self._connect("mysql"):
            return True
        return False

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        shutil.rmtree(self._tmp, ignore_errors=True)


def give_to_postgres(folder: Path) -> None:
    """Makes a folder the server's own, where its user is not this process's."""
    if os.geteuid() == 0:
        user = _postgres_user()
        os.chown(folder, user.pw_uid, user.pw_gid)


def _install(name: str, command: list[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd="/"
    )
    if done.returncode:
        raise NotStarted(f"{name} could not be installed in a folder:\n{done.stdout}")


def _postgres_bin() -> Path:
    """The folder of the newest PostgreSQL there is, or of the one that TEST_POSTGRES names."""
    found = [path for path in POSTGRES_HOMES.glob("*/bin/postgres") if path.exists()]
    if found and "TEST_POSTGRES" not in os.environ:
        return max(found, key=lambda path: int(re.sub(r"\D", "", path.parts[-3]) or 0)).parent
    return Path(program("postgres", POSTGRES_MISSING)).parent


def _postgres_user() -> pwd.struct_passwd:
    known = {user.pw_name: user for user in pwd.getpwall()}
    return next(known[name] for name in POSTGRES_USERS if name in known)


def _unprivileged() -> list[str]:
    """What runs a program as PostgreSQL's user where this process is root's.

    A change of user forgets who is to die with whom, so that is said again.
    """
    if os.geteuid():
        return []
    user = _postgres_user()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups",
            "--pdeathsig=KILL"]  # fmt: skip


def _as_root() -> list[str]:
    return [] if os.geteuid() else ["--user=root"]
