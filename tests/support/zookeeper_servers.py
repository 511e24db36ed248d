"""Real ZooKeeper for tests: one server, or three that elect a leader.

Sessions may last from 0.4 to 60 seconds. A server writes what it acknowledges before it answers and
does not wait for the disk, so a killed one comes back with all of it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from certificates import certificate
from child import Child
from eventually import eventually
from kazoo.client import KazooClient
from ports import HOST, free_port
from programs import NotStarted, program

MISSING = (
    "the tests need ZooKeeper 3.8 or newer and Java: install them, e.g. apt-get install "
    "libzookeeper-java default-jre-headless"
)
JARS = Path("/usr/share/java")
# zookeeper.jar names most of what it needs; these are where its log goes, and what TLS wants.
CLASSES = ("zookeeper", "slf4j-simple", "netty-codec", "netty-resolver",
           "netty-transport-native-unix-common")  # fmt: skip
# Starts within half a second, and stays small.
JAVA_OPTIONS = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-XX:-UsePerfData", "-Dzookeeper.fastleader.maxNotificationInterval=1000",
                "-Dzookeeper.jmx.log4j.disable=true",
                "-Dorg.slf4j.simpleLogger.showDateTime=true",
                "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")  # fmt: skip
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"
# ZooKeeper 3.8.0 never closes a connection on which something comes before its data is loaded.
READY_S = 0.2
SERVERS = 3


class _ZooKeeper(Child):
    """A process of ZooKeeper's; it is up when it answers, which says nothing of a quorum.

    Attributes:
        config: its settings; what is changed holds from the next start on.
    """

    def __init__(self, folder: Path, port: int | None, config: Mapping[str, object]) -> None:
        super().__init__("zookeeper", folder, port)
        self._words_port = self.port
        self.config: dict[str, object] = {
            "dataDir": self.folder / "data", "clientPort": self.port,
            "clientPortAddress": HOST, "minSessionTimeout": 400, "maxSessionTimeout": 60_000,
            "initLimit": 50, "syncLimit": 25, "maxClientCnxns": 0, "forceSync": "no",
            "admin.enableServer": "false", "4lw.commands.whitelist": "*",
        } | dict(config)  # fmt: skip

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"zookeeper://{self.address}"

    @property
    def mode(self) -> str:
        """`standalone`, `leader`, `follower`, or nothing while it serves nobody."""
        with suppress(OSError):
            for line in self.word("srvr", 1.0).splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ")
        return ""

    def word(self, word: str, timeout_s: float = 5.0) -> str:
        """What it answers to a four-letter word, such as `srvr`, `mntr` or `cons`."""
        with socket.create_connection((HOST, self._words_port), timeout_s) as asked:
            asked.sendall(word.encode())
            pieces = iter(lambda: asked.recv(65536), b"")
            return b"".join(pieces).decode()

    def packets(self) -> int:
        """How many requests it has received since it started: pings and such words count too."""
        for line in self.word("mntr").splitlines():
            name, _, value = line.partition("\t")
            if name == "zk_packets_received":
                return int(float(value))
        raise RuntimeError("the server serves nobody")

    def _command(self) -> list[str]:
        java, jars = program("java", MISSING), [JARS / f"{name}.jar" for name in CLASSES]
        if not jars[0].exists():
            raise NotStarted(MISSING)
        config = self.folder / "zookeeper.cfg"
        lines = [f"{name}={value}\n" for name, value in self.config.items()]
        config.write_text("".join(lines), encoding="utf-8")
        classes = ":".join(map(str, jars))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        options = [*JAVA_OPTIONS, f"-Djava.io.tmpdir={self.folder}"]
        return [java, *options, "-cp", classes, main, str(config)]

    def _is_ready(self) -> bool:
        try:
            return f"user.dir={self.folder}\n" in self.word("envi", READY_S)
        except OSError:
            return False


class ZooKeeperServer(_ZooKeeper):
    """One server by itself.

    Args:
        folder: where its data, its settings and its log are.
        tick_ms: how often it looks for sessions that are over.
        tls: whether it speaks TLS, with a certificate that signs itself, and nothing else.
        asks_clients: whether it speaks only with those who show that same certificate as theirs.
        port: where it listens; a free one if left out.

    Attributes:
        certificate: what is to be trusted where it speaks TLS.
        key: the key to the certificate.
    """

    certificate: Path
    key: Path

    def __init__(
        self,
        folder: Path,
        *,
        tick_ms: int = 200,
        tls: bool = False,
        asks_clients: bool = False,
        port: int | None = None,
    ) -> None:
        super().__init__(folder, port, {"tickTime": tick_ms})
        self._tls = tls
        if tls:
            self._speak_tls("need" if asks_clients else "none")
        self._start()

    @property
    def url(self) -> str:
        if not self._tls:
            return super().url
        return f"zookeepers://{self.address}?ssl_ca_certs={self.certificate}"

    def expire(self, session_id: int, password: bytes) -> None:
        """Ends somebody's session, as if it had been silent for too long."""
        end_session(f"{HOST}:{self._words_port}", session_id, password)

    def _speak_tls(self, of_clients: str) -> None:
        self.certificate, self.key = certificate(self.folder / "tls", "server")
        store = self.folder / "tls" / "server.pem"
        store.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())
        self._words_port = free_port()  # words are not spoken over TLS
        self.config |= {
            "serverCnxnFactory": NETTY, "clientPort": self._words_port,
            "secureClientPort": self.port, "secureClientPortAddress": HOST,
            "ssl.keyStore.location": store, "ssl.trustStore.location": self.certificate,
            "ssl.trustStore.type": "PEM", "ssl.clientAuth": of_clients,
        }  # fmt: skip

    def _is_ready(self) -> bool:
        if not super()._is_ready():
            return False
        try:
            socket.create_connection((HOST, self.port), READY_S).close()
            return "Mode: standalone" in self.word("srvr", READY_S)
        except OSError:
            return False


class ZooKeeperEnsemble3:
    """Three servers, of which two must be up; started when they have a leader.

    A new leader takes about a second.
    """

    def __init__(self, folder: Path, *, tick_ms: int = 200) -> None:
        ports = [(free_port(), free_port(), free_port()) for _ in range(SERVERS)]
        members = {
            f"server.{number}": f"{HOST}:{quorum}:{election}"
            for number, (_, quorum, election) in enumerate(ports)
        }
        with ExitStack() as stack:
            self.servers = [
                stack.enter_context(_Member(folder, number, port, {"tickTime": tick_ms} | members))
                for number, (port, _, _) in enumerate(ports)
            ]
            eventually(self._is_whole)
            self._stack = stack.pop_all()

    @property
    def url(self) -> str:
        return "zookeeper://" + ",".join(each.address for each in self.servers)

    def leader(self) -> int:
        """The index, in `servers`, of the leader; raises a RuntimeError while there is none."""
        for number, server in enumerate(self.servers):
            if server.is_running and server.mode == "leader":
                return number
        raise RuntimeError("there is no leader")

    def expire(self, session_id: int, password: bytes) -> None:
        """Ends somebody's session, as if it had been silent for too long."""
        hosts = ",".join(each.address for each in self.servers if each.is_running)
        end_session(hosts, session_id, password)

    def stop(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _is_whole(self) -> bool:
        modes = sorted(each.mode for each in self.servers)
        return modes == ["follower"] * (SERVERS - 1) + ["leader"]


class _Member(_ZooKeeper):
    """One of an ensemble; after a restart it answers before it has found the others."""

    def __init__(self, folder: Path, number: int, port: int, options: dict[str, object]) -> None:
        super().__init__(folder / f"server-{number}", port, options)
        data = self.folder / "data"
        data.mkdir()
        (data / "myid").write_text(str(number), encoding="utf-8")
        self._start()


def end_session(hosts: str, session_id: int, password: bytes) -> None:
    """Takes a session over and ends it: whoever had it hears that it has expired."""
    client = KazooClient(hosts, client_id=(session_id, password))
    client.start(60)
    assert client.client_id[0] == session_id, "there is no such session"
    client.stop()
    client.close()
