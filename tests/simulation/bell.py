"""A bell of a run: rings and replies that travel over a connection, and are lost with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qframe.stores.types import LateReply
from simulation.scheduler import Task

if TYPE_CHECKING:
    from simulation.store import Connection


class SimulatedBell:
    """A bell on the other side of a connection; one task waits for it.

    Replies come one after the other, as over one connection. One is lost where that breaks; where
    pulls stand its worker notices: at once in a run whose attempts are exact, as a server's end
    would have it, in a harsh one when it is found to be half open.
    """

    def __init__(
        self, connection: Connection, bells: list[SimulatedBell], address: str = ""
    ) -> None:
        self.address = address
        self._connection = connection
        self._process = connection.process
        self._scheduler = connection.scheduler
        self._bells = bells
        self._is_rung = False
        self._waiting: Task | None = None
        self._hints: set[int] | None = set()
        self._late: list[LateReply] = []
        self._last_s = 0.0
        self._may_have_lost = False
        bells.append(self)

    def rings(self, slots: frozenset[int] | None) -> None:
        """The store rings; that arrives later, or not at all."""
        connection = self._connection
        if self._process.dead:
            return
        if connection.troubles and connection.loses_bells():
            self._break()
            return
        self._scheduler.arrives(connection.latency_s(), self._arrive, slots)

    def _arrive(self, slots: frozenset[int] | None) -> Task | None:
        if slots is None:
            self._hints = None
        elif self._hints is not None:
            self._hints |= slots
        self._is_rung = True
        return self._waiting

    def replies(self, reply: LateReply) -> bool:
        """The store answers a pull that stood; returns whether it knows of a listener.

        Of a killed one it may not know yet.
        """
        connection, scheduler = self._connection, self._scheduler
        if self._process.dead:
            return connection.is_open_still()
        if connection.troubles and connection.loses_bells():
            connection.log("store", "loses the reply to {}", self.address)
            self._break()
            return True
        at = max(self._last_s, scheduler.now + connection.reply_in_s())
        self._last_s = at
        scheduler.arrives(at - scheduler.now, self._arrive_late, reply)
        return True

    def _arrive_late(self, reply: LateReply) -> Task | None:
        self._late.append(reply)
        return self._arrive(frozenset((reply.slot,)))

    def _break(self) -> None:
        """The connection has lost something, which is noticed where pulls stand over it."""
        if self.address:
            self._scheduler.arrives(self._connection.breaks_in_s(), self._break_off, None)

    def _break_off(self, _: object) -> Task | None:
        self._may_have_lost = True
        return self._arrive(None)

    def late(self) -> list[LateReply] | None:
        late, self._late = self._late, []
        for reply in late:
            self._connection.pulled(self._connection.server.group_at(self.address), reply.delivery)
        if self._may_have_lost:
            self._may_have_lost = False
            return None
        return late

    def wait(self, timeout_s: float) -> bool:
        if not self._is_rung:
            self._waiting = self._scheduler.current
            self._scheduler.block(timeout_s)
            self._waiting = None
        rung, self._is_rung = self._is_rung, False
        return rung

    def hints(self) -> frozenset[int] | None:
        hints, self._hints = self._hints, set()
        return None if hints is None else frozenset(hints)

    def ring(self) -> None:
        if (waiting := self._arrive(None)) is not None:
            self._scheduler.wake(waiting)

    def close(self) -> None:
        self.ring()
        if self in self._bells:
            self._bells.remove(self)
