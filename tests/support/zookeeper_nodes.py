"""The nodes of a ZooKeeper in memory, for what a session does with the replies that it gets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError

from qframe.errors import CoordinatorUnavailable

Watch = Callable[[Any], None]


class Reply:
    """A reply that has come, or never does."""

    def __init__(self, act: Callable[[], Any]) -> None:
        try:
            self._value, self._error = act(), None
        except Exception as error:
            self._value, self._error = None, error

    def get(self, timeout: float) -> Any:
        assert timeout > 0
        if self._error is not None:
            raise self._error
        return self._value


class Nodes:
    """The nodes that all sessions see."""

    def __init__(self) -> None:
        self.nodes: dict[str, SimpleNamespace] = {}
        self.watches: defaultdict[str, list[Watch]] = defaultdict(list)
        self._zxids = count(1)

    def make(self, path: str, value: bytes, owner: int) -> SimpleNamespace:
        if path in self.nodes:
            raise NodeExistsError
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            raise NoNodeError
        node = SimpleNamespace(
            value=value, version=0, czxid=next(self._zxids), ephemeralOwner=owner, ctime=0
        )
        self.nodes[path] = node
        self._fire(f"{parent}/")
        return node

    def of(self, path: str) -> SimpleNamespace:
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path]

    def change(self, path: str, value: bytes, version: int) -> None:
        node = self.of(path)
        if version not in (-1, node.version):
            raise BadVersionError
        node.value, node.version = value, node.version + 1
        self._fire(path)

    def remove(self, path: str) -> None:
        self.of(path)
        del self.nodes[path]
        self._fire(path)
        self._fire(f"{path.rpartition('/')[0]}/")

    def expire(self, session_id: int) -> None:
        """Removes what is a session's."""
        for path in [path for path, it in self.nodes.items() if it.ephemeralOwner == session_id]:
            self.remove(path)

    def children(self, path: str) -> list[str]:
        self.of(path)
        names = [each.removeprefix(f"{path}/") for each in self.nodes if each != path]
        return [name for name in names if "/" not in name and f"{path}/{name}" in self.nodes]

    def _fire(self, path: str) -> None:
        for watch in self.watches.pop(path, ()):
            watch(None)


class Session:
    """A session as the driver shows it, and its client; its requests may be lost.

    Attributes:
        requests: how often each request was made.
        lost: the errors of the next requests, by their names.
    """

    shown = "zookeeper://nodes"
    acl = None
    session_s = 30.0

    def __init__(self, nodes: Nodes, session_id: int) -> None:
        self.nodes = nodes
        self.session_id = session_id
        self.connected = True
        self.requests: defaultdict[str, int] = defaultdict(int)
        self.lost: defaultdict[str, list[Exception]] = defaultdict(list)
        self.client = self

    @staticmethod
    def unavailable(error: Exception) -> CoordinatorUnavailable:
        return CoordinatorUnavailable("zookeeper://nodes", type(error).__name__)

    def _asked(self, name: str, act: Callable[[], Any]) -> Reply:
        def asked() -> Any:
            self.requests[name] += 1
            if self.lost[name]:
                raise self.lost[name].pop(0)
            return act()

        return Reply(asked)

    def create_async(
        self, path: str, value: bytes = b"", *, acl: Any = None, ephemeral: bool = False,
        makepath: bool = False, include_data: bool = False,
    ) -> Reply:  # fmt: skip
        def act() -> Any:
            parts = path.split("/")[1:-1] if makepath else []
            for depth in range(len(parts)):
                parent = "/" + "/".join(parts[: depth + 1])
                if parent not in self.nodes.nodes:
                    self.nodes.make(parent, b"", 0)
            made = self.nodes.make(path, value, self.session_id if ephemeral else 0)
            return (path, made) if include_data else path

        return self._asked("create", act)

    def set_async(self, path: str, value: bytes, version: int = -1) -> Reply:
        return self._asked("set", lambda: self.nodes.change(path, value, version))

    def get_async(self, path: str, watch: Watch | None = None) -> Reply:
        def act() -> Any:
            node = self.nodes.of(path)
            if watch is not None:
                self.nodes.watches[path].append(watch)
            return node.value, SimpleNamespace(**vars(node))

        return self._asked("get", act)

    def get_children_async(self, path: str, watch: Watch | None = None) -> Reply:
        def act() -> list[str]:
            names = self.nodes.children(path)
            if watch is not None:
                self.nodes.watches[f"{path}/"].append(watch)
            return names

        return self._asked("children", act)

    def delete_async(self, path: str) -> Reply:
        return self._asked("delete", lambda: self.nodes.remove(path))

    def transaction(self) -> Transaction:
        return Transaction(self)


class Transaction:
    """Operations of which all are done, or none."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._operations: list[tuple[str, str]] = []

    def check(self, path: str, version: int) -> None:
        assert version == -1
        self._operations.append(("check", path))

    def delete(self, path: str) -> None:
        self._operations.append(("delete", path))

    def create(self, path: str, *, acl: Any = None, ephemeral: bool = False) -> None:
        assert ephemeral
        self._operations.append(("create", path))

    def commit_async(self) -> Reply:
        return self._session._asked("commit", self._commit)

    def _commit(self) -> list[Any]:
        nodes, session_id = self._session.nodes, self._session.session_id
        if not all((name == "create") != (path in nodes.nodes) for name, path in self._operations):
            return [RolledBackError()] * len(self._operations)
        for name, path in self._operations:
            if name == "delete":
                nodes.remove(path)
            elif name == "create":
                nodes.make(path, b"", session_id)
        return [True] * len(self._operations)
