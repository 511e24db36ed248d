"""A bell of a run: rings and replies that travel over a connection, and are lost with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qframe.stores.redis.bell import FIRST_PAUSE_S, LONGEST_PAUSE_S
from qframe.stores.types import LateReply
from simulation.scheduler import Task

if TYPE_CHECKING:
    from simulation.store import Connection


class SimulatedBell:
    """A bell on the other side of a connection; one task waits for it.

    Replies come one after the other, as over one connection, which breaks with the first thing that
    is lost, where pulls stand over it. Its worker notices: at once in a run whose attempts are
    exact, as a server's end would have it, in a harsh one when it is found to be half open. Then it
    tries to listen anew, after pauses that double, as the bell of Redis does.
    """

    def __init__(
        self, connection: Connection, bells: list[SimulatedBell], address: str = ""
    ) -> None:
        self.address = f"{address}/0" if address else ""
        self._connection = connection
        self._process = connection.process
        self._scheduler = connection.scheduler
        self._bells = bells
        self._is_rung = False
        self._waiting: Task | None = None
        self._hints: set[int] | None = set()
        self._late: list[LateReply] = []
        self._last_s = 0.0
        self._has_lost = False
        self._is_broken = False
        self._is_listening = True
        self._pause_s = FIRST_PAUSE_S
        bells.append(self)

    def cut(self) -> None:
        """The store is another one now: it knows of no listener, and the break is noticed soon."""
        self._is_listening = False
        if self.address and not self._is_broken:
            self._is_broken = True
            self._scheduler.arrives(self._connection.latency_s(), self._break_off, None)

    def rings(self, slots: frozenset[int] | None) -> None:
        """The store rings; that arrives later, or not at all."""
        connection = self._connection
        if self._process.dead:
            return
        if self._is_lost():
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
        if not self._is_listening:
            return False
        if self._is_lost():
            connection.log("store", "loses the reply to {}", self.address)
            return True
        at = max(self._last_s, scheduler.now + connection.reply_in_s())
        self._last_s = at
        scheduler.arrives(at - scheduler.now, self._arrive_late, reply)
        return True

    def _arrive_late(self, reply: LateReply) -> Task | None:
        self._late.append(reply)
        return self._arrive(frozenset((reply.slot,)))

    def _is_lost(self) -> bool:
        """Whether what the store sends is lost, on the way or with the connection."""
        connection = self._connection
        if self._is_broken:
            return True
        if not (connection.troubles and connection.loses_bells()):
            return False
        if self.address:
            self._is_broken = True
            self._scheduler.arrives(connection.breaks_in_s(), self._break_off, None)
        return True

    def _break_off(self, _: object) -> Task | None:
        """The break is noticed; the store hears of it too."""
        self._has_lost, self._is_listening = True, False
        return self._listen_anew(None)

    def _listen_anew(self, _: object) -> Task | None:
        """Rings in either case, since something may have been missed."""
        if self._connection.loses_bells():
            self._scheduler.arrives(self._pause_s, self._listen_anew, None)
            self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
        else:
            self._is_broken, self._is_listening = False, True
            base, _, number = self.address.rpartition("/")
            self.address = f"{base}/{int(number) + 1}"
            self._pause_s = FIRST_PAUSE_S
        return self._arrive(None)

    def late(self) -> list[LateReply]:
        late, self._late = self._late, []
        for reply in late:
            self._connection.pulled(self._connection.server.group_at(self.address), reply.delivery)
        return late

    def has_lost(self) -> bool:
        has_lost, self._has_lost = self._has_lost, False
        return has_lost

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
