"""Real servers for tests, and a proxy that does to their connections what networks do.

Each is started by its constructor and ended by `stop`, or by the end of its `with`.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import redis
from database_servers import MariaDbServer, PostgresServer
from eventually import eventually
from ports import HOST, free_port, give_back
from redis_servers import RedisServer, Sentinel, connect
from zookeeper_servers import ZooKeeperEnsemble3, ZooKeeperServer

__all__ = ["MariaDbServer", "PostgresServer", "Proxy", "RedisCluster3", "RedisServer",
           "SentinelSet", "ZooKeeperEnsemble3", "ZooKeeperServer", "connect",
           "free_port"]  # fmt: skip

SLOTS = 16384
NODES = 3
CHUNK = 65536
RESET = struct.pack("ii", 1, 0)


class SentinelSet:
    """A primary and its replica, watched by three sentinels of whom two must agree.

    A promotion takes some three seconds. A primary that comes back is made a replica after ten, and
    whenever a server's role changes the sentinels cut its clients' connections.
    """

    NAME = "primary"

    def __init__(self, folder: Path) -> None:
        with ExitStack() as stack:
            self.primary = stack.enter_context(RedisServer(folder / "primary"))
            config = {"replicaof": f"{HOST} {self.primary.port}"}
            self.replica = stack.enter_context(RedisServer(folder / "replica", config=config))
            eventually(lambda: b"connected" in self.replica.call("ROLE"))
            folders = [folder / f"sentinel-{number}" for number in range(3)]
            self.sentinels = [
                stack.enter_context(Sentinel(each, self.NAME, self.primary.port))
                for each in folders
            ]
            eventually(lambda: all(self._knows_all(each) for each in self.sentinels))
            self._stack = stack.pop_all()

    @property
    def url(self) -> str:
        hosts = ",".join(f"{HOST}:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.NAME}"

    def current_primary_port(self) -> int:
        """The primary's port, as most of the sentinels that answer have it."""
        votes: Counter[int] = Counter()
        for sentinel in self.sentinels:
            with suppress(redis.RedisError), sentinel.client() as client:
                votes[int(client.sentinel_get_master_addr_by_name(self.NAME)[1])] += 1
        return votes.most_common(1)[0][0]

    def kill_primary(self) -> None:
        """Kills the server that the sentinels take for the primary."""
        port = self.current_primary_port()
        next(each for each in (self.primary, self.replica) if each.port == port).kill()

    def stop(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _knows_all(self, sentinel: Sentinel) -> bool:
        with sentinel.client() as client:
            seen = client.sentinel_master(self.NAME)
            return (seen["num-slaves"], seen["num-other-sentinels"]) == (1, 2)


class RedisCluster3:
    """A Redis Cluster of three primaries, without replicas; `aof` as that of `RedisServer`."""

    def __init__(self, folder: Path, *, aof: bool = False) -> None:
        config = {"cluster-enabled": "yes", "cluster-node-timeout": "2000"}
        with ExitStack() as stack:
            self.servers = [
                stack.enter_context(RedisServer(folder / f"node-{n}", config=config, aof=aof))
                for n in range(NODES)
            ]
            self._form()
            self._stack = stack.pop_all()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{HOST}:{each.port}" for each in self.servers)

    def node_of(self, slot: int) -> int:
        """The index, in `servers`, of the node that serves a slot, as the living nodes have it."""
        for server in self.servers:
            with suppress(redis.RedisError), server.client() as client:
                for first, last, (_, port, *_), *_ in client.execute_command("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return [each.port for each in self.servers].index(port)
        raise RuntimeError(f"no node serves slot {slot}")

    def migrate_slot(
        self, slot: int, to_index: int, *, pause_s: float = 0.0, batch: int = 5
    ) -> None:
        """Moves a slot and its keys while clients go on; what is half moved stays so for a pause.

        In between, its old node answers ASK for keys that have left, and TRYAGAIN for several keys
        of which some have.
        """
        from_index = self.node_of(slot)
        if from_index == to_index:
            return
        source, target = self.servers[from_index], self.servers[to_index]
        source_id, target_id = self._id(source), self._id(target)
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        pause = threading.Event()
        with source.client() as client:
            while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, batch):
                client.execute_command("MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)
                pause.wait(pause_s)
        # The new owner first: so at each moment there is one.
        others = [each for each in self.servers if each not in (source, target)]
        for server in [target, source, *others]:
            server.call("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def await_words(self) -> None:
        """Returns when all that was published before has come to all who listen at any node.

        Nodes pass words on in their order, and a node hands all of them out before it looks again:
        so when a second round of words has come, those before the first have. To a node to which
        it has no link yet a node passes nothing on, so it says each word until all have heard it.
        """
        with ExitStack() as stack:
            clients = [stack.enter_context(each.client()) for each in self.servers]
            for _ in range(2):
                ears = [stack.enter_context(each.pubsub()) for each in clients]
                channel = f"round-{uuid.uuid4()}"
                for ear in ears:
                    ear.subscribe(channel)
                    assert ear.get_message(timeout=60)
                for client in clients:
                    _say_until_heard(client, channel, ears)

    def await_whole(self) -> None:
        """Returns when all nodes know each other and serve all slots."""
        eventually(lambda: all(self._is_whole(each) for each in self.servers))

    def stop(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _form(self) -> None:
        for number, server in enumerate(self.servers):
            first, after = number * SLOTS // NODES, (number + 1) * SLOTS // NODES
            server.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            server.call("CLUSTER", "ADDSLOTSRANGE", first, after - 1)
        for server in self.servers[1:]:
            self.servers[0].call("CLUSTER", "MEET", HOST, server.port)
        self.await_whole()
        self.await_words()

    def _is_whole(self, server: RedisServer) -> bool:
        with server.client() as client:
            info = client.cluster("INFO")
        wanted = {
            "cluster_state": "ok", "cluster_known_nodes": "3", "cluster_size": "3",
            "cluster_slots_ok": str(SLOTS),
        }  # fmt: skip
        return all(str(info[name]) == value for name, value in wanted.items())

    def _id(self, server: RedisServer) -> str:
        answer = server.call("CLUSTER", "MYID")
        return answer.decode() if isinstance(answer, bytes) else answer


class _Link:
    """One connection through a proxy: the client's socket, the server's, two pumps between them.

    The second pump to leave closes both sockets: a close beside a blocked read would do nothing.
    """

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.sockets = (near, far)
        self.pumps: tuple[threading.Thread, ...] = ()
        self.over = False
        self.lost_replies = False
        self._inside = 2
        self._lock = threading.Lock()

    def end(self, *, reset: bool = False) -> None:
        """Has both pumps leave; with a reset, the close that follows sends RST."""
        with self._lock, suppress(OSError):
            if self.over:
                return
            self.over = True
            if reset:
                for each in self.sockets:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            for each in self.sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)

    def leave(self) -> bool:
        """Called by each pump as its last; answers whether all is closed now."""
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for each in self.sockets:
                    each.close()
            return self._inside == 0


class Proxy:
    """A TCP proxy before a server on this machine; it passes all on until it is told otherwise.

    If the server does not accept a connection, the client's is reset.
    """

    def __init__(self, target_port: int, port: int | None = None) -> None:
        self.port = free_port() if port is None else port
        self._target = target_port
        self._changed = threading.Condition()
        self._links: set[_Link] = set()
        self._stalled = False
        self._late_s = 0.0
        self._to_drop = 0
        self._listener: socket.socket | None = None
        self._accepting: threading.Thread | None = None
        self.accept()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def lead_to(self, port: int) -> None:
        """Has new connections lead to another server, and ends those there are."""
        self._target = port
        self.reset_all()

    def accept(self) -> None:
        """Takes new connections."""
        if self._listener is not None:
            return
        listener = self._listener = socket.create_server((HOST, self.port))
        self._accepting = threading.Thread(target=self._serve, args=(listener,), daemon=True)
        self._accepting.start()

    def refuse(self) -> None:
        """Takes no new connections; those there are stay."""
        listener, self._listener = self._listener, None
        if listener is not None and self._accepting is not None:
            listener.shutdown(socket.SHUT_RDWR)
            self._accepting.join()
            listener.close()

    def stall(self) -> None:
        """Nothing comes through any more, not even an end; connections stay, and new ones come."""
        with self._changed:
            self._stalled = True

    def resume(self) -> None:
        """What was held back comes through, and what follows."""
        with self._changed:
            self._stalled = False
            self._changed.notify_all()

    def delay(self, seconds: float) -> None:
        """Each chunk from the server comes so much later, from now on; 0 ends it."""
        with self._changed:
            self._late_s = seconds

    def drop_replies(self, n: int) -> None:
        """Swallows the next n chunks from the server, then resets the connections they were for.

        A new connection's greeting counts too: a client is to be connected before.
        """
        with self._changed:
            self._to_drop = n

    def reset_all(self) -> None:
        """Resets all connections, to both sides; they are gone when this returns."""
        with self._changed:
            links = list(self._links)
        self._reset(links)
        for link in links:
            for pump in link.pumps:
                pump.join()

    def stop(self) -> None:
        """Takes no new connections and resets those there are."""
        self.refuse()
        self.reset_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        give_back(self.port)

    def _serve(self, listener: socket.socket) -> None:
        while self._listener is listener:
            with suppress(OSError):
                near, _ = listener.accept()
                self._open(near)

    def _open(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection((HOST, self._target))
        except OSError:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            near.close()
            return
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(near, far)
        ways = ((near, far, False), (far, near, True))
        link.pumps = tuple(
            threading.Thread(target=self._pump, args=(link, *way), daemon=True) for way in ways
        )
        with self._changed:
            for pump in link.pumps:
                pump.start()
            self._links.add(link)

    def _pump(
        self, link: _Link, source: socket.socket, sink: socket.socket, is_reply: bool
    ) -> None:
        with suppress(OSError):
            while (chunk := self._chunk(link, source)) and not link.over:
                if is_reply and self._late_s:
                    time.sleep(self._late_s)
                if not (is_reply and self._swallows(link)):
                    self._send(link, sink, chunk)
        link.end()
        if link.leave():
            with self._changed:
                self._links.discard(link)

    def _chunk(self, link: _Link, source: socket.socket) -> bytes:
        """The next bytes, or none at the end; not before they may flow."""
        try:
            chunk = source.recv(CHUNK)
        except OSError:
            chunk = b""
        with self._changed:
            self._changed.wait_for(lambda: not self._stalled or link.over)
        return chunk

    def _swallows(self, link: _Link) -> bool:
        with self._changed:
            if self._to_drop == 0:
                return False
            self._to_drop -= 1
            link.lost_replies = True
            links = [] if self._to_drop else [each for each in self._links if each.lost_replies]
        self._reset(links)
        return True

    def _reset(self, links: list[_Link]) -> None:
        for link in links:
            link.end(reset=True)
        with self._changed:  # those that are held back look whether they are over
            self._changed.notify_all()

    def _send(self, link: _Link, sink: socket.socket, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest and not link.over:
            _, ready, _ = select.select([], [sink], [], 0.05)
            if ready:
                rest = rest[sink.send(rest, socket.MSG_DONTWAIT) :]


def _say_until_heard(client: redis.Redis, channel: str, ears: Sequence[Any]) -> None:
    word = uuid.uuid4().hex
    deaf = list(ears)

    def is_heard() -> bool:
        client.publish(channel, word)
        deaf[:] = [ear for ear in deaf if not _hears(ear, word.encode())]
        return not deaf

    eventually(is_heard)


def _hears(ear: Any, word: bytes) -> bool:
    while message := ear.get_message(timeout=1):
        if message["data"] == word:
            return True
    return False
