"""The connections of a server, which the addresses of its clients share."""

from __future__ import annotations

from typing import Final, Protocol

from qframe.open_files import most_files
from qframe.shares import Share

MOST_CONNECTIONS: Final = 8192


class Connection(Protocol):
    """A connection of a server."""

    def refuse(self) -> None:
        """Closes it, with a reply if it has asked for one."""

    def drop(self) -> None:
        """Closes it, as one that nobody has asked anything at for a while."""


class Connections:
    """Counts connections by the address of their clients, and closes those beyond its share.

    An address with its share loses the connection on which it has asked for nothing for longest, so
    a new request is served all the same. If all of them are waiting for replies, the new one is
    refused. Half of the files that the process may open are left to the store.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int | None = None) -> None:
        most = min(MOST_CONNECTIONS, most_files() // 2) if most is None else most
        self._share = Share(most)
        self._addresses: dict[Connection, str] = {}
        self._idle: dict[str, dict[Connection, None]] = {}

    def add(self, connection: Connection, address: str) -> None:
        """Notes a new one; closes it, or an idle one, if its address has its share."""
        if not self._share.take(address):
            idle = next(iter(self._idle.get(address, ())), None)
            if idle is None:
                connection.refuse()
                return
            self.remove(idle)
            idle.drop()
            if not self._share.take(address):  # others have more than when it took those
                connection.refuse()
                return
        self._addresses[connection] = address

    def mark(self, connection: Connection, *, is_idle: bool) -> None:
        """Notes whether a connection waits for a request now."""
        address = self._addresses.get(connection)
        if address is None:
            return
        if is_idle:
            self._idle.setdefault(address, {}).setdefault(connection)
        else:
            self._forget_idle(connection, address)

    def remove(self, connection: Connection) -> None:
        """Forgets one that is closed."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._share.give_back(address)
            self._forget_idle(connection, address)

    def _forget_idle(self, connection: Connection, address: str) -> None:
        idle = self._idle.get(address, {})
        idle.pop(connection, None)
        if not idle:
            self._idle.pop(address, None)
