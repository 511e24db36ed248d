"""Several worker processes: started, restarted when they die, and stopped together.

    idle ──► running ──► serves ─┐
               ▲  └──────────────┴─died──► waiting (backoff) ──► running
               │                 └─ended with 0, in a burst──► done
               └ the first alone, until one has served: what is wrong for all is told once

The supervisor has one thread, which sleeps until a signal comes (the death of a child is one), a
child says that it serves, or a planned start is due. It opens no store and imports no module of the
user's.

Invariants: no child is started once the supervisor stops; a child that ended is restarted or done,
never forgotten; at most one process per number.

Failures: a child that refuses to start (exit code 1 or 2) before any has served ends the supervisor
with that code, after the child's own words. If the supervisor is killed, each child sees the end of
its pipe (`supervisor_pipe`) and stops cleanly by itself.
"""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

from qframe.clock import Clock
from qframe.errors import WorkerFailed
from qframe.events import Events
from qframe.retry import Backoff
from qframe.runtime.process.child import Child
from qframe.runtime.process.health import Health, combined

BACKOFF: Final = Backoff(first=0.5, factor=2.0, cap=30.0)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_REFUSALS: Final = (1, 2)
_KILLED_WITHIN_S: Final = 5.0


class Supervisor:
    """Keeps processes running until it is told to stop or, in a burst, all are done.

    Args:
        processes: how many.
        command: the command line of a child, given its number (from 1) and the file descriptor
            of its end of the pipe, into which it writes a line when it serves.
        environment: the environment of a child, given its number.
        ends: whether a child that ends with exit code 0 is done; otherwise it is restarted.
        events: told what happens to the children.
        clock: for waits before restarts.
        backoff: the waits before restarts.
    """

    def __init__(
        self,
        *,
        processes: int,
        command: Callable[[int, int], Sequence[str]],
        environment: Callable[[int], Mapping[str, str]],
        ends: bool,
        events: Events,
        clock: Clock,
        backoff: Backoff = BACKOFF,
    ) -> None:
        def child(number: int) -> Child:
            return Child(
                number, command=lambda fd: command(number, fd), environment=environment(number),
                clock=clock,
            )  # fmt: skip

        self._children = [child(number) for number in range(1, processes + 1)]
        self._ends = ends
        self._events = events
        self._clock = clock
        self._backoff = backoff
        self._heard: list[int] = []  # signals
        self._stopping = False
        self._proven = False  # whether any child has ever served
        self._refusal: int | None = None

    def run(self) -> int:
        """Serves until SIGTERM or SIGINT, or until all are done; only in the main thread.

        Returns:
            The exit code: 0 after a clean stop or when all are done, 128 + n if a second signal n
            has killed the children, or the code with which the first child refused to start.

        Raises:
            WorkerFailed: if the first child cannot be started at all.
        """
        with self._signals() as wake:
            try:
                return self._supervise(wake)
            finally:
                for child in self._children:
                    child.close()

    def health(self) -> Health:
        """How its children are; from any thread, at once."""
        if self._stopping:
            return Health(state="stopping")
        found = [child.health() for child in self._children]
        return combined([health for health in found if health is not None])

    def _supervise(self, wake: socket.socket) -> int:
        self._start(self._children[0])
        while any(child.pid or child.starts_at_s is not None for child in self._children):
            self._sleep(wake)
            if len(self._heard) > 1:
                return self._kill(self._heard[-1])
            if self._heard and not self._stopping:
                self._stop()
            for child in self._children:
                self._look_after(child)
            if self._refusal is not None:
                return self._refusal
        self._tell("supervisor.stopped")
        return 0

    def _look_after(self, child: Child) -> None:
        pid = child.pid
        code = child.poll()
        if child.serves:
            self._start_others()
        if code is not None:
            self._ended(child, pid, code)
        due_s = child.starts_at_s
        if due_s is not None and self._clock.monotonic_s() >= due_s:
            self._start(child, again=True)

    def _start_others(self) -> None:
        """Starts all but the first, once a child has served, unless it is to stop."""
        if self._proven or self._stopping:
            return
        self._proven = True
        self._tell("supervisor.started", processes=len(self._children))
        for child in self._children[1:]:
            self._start(child)

    def _start(self, child: Child, *, again: bool = False) -> None:
        try:
            pid = child.start()
        except OSError as error:
            if not self._proven:
                raise WorkerFailed(f"process {child.number}", error) from error
            self._restart_later(child, None, error=error)
        else:
            if again:
                self._tell("worker.restarted", number=child.number, pid=pid)

    def _ended(self, child: Child, pid: int | None, code: int) -> None:
        if code == 0 and self._ends:
            self._start_others()
        if not self._stopping and code in _REFUSALS and not self._proven:
            self._refusal = code
        elif self._stopping or (code == 0 and self._ends):
            clean = code in (0, -signal.SIGTERM)
            name = "worker.ended" if clean else "worker.died"
            self._tell(name, number=child.number, pid=pid, **_how(code))
        else:
            self._restart_later(child, pid, **_how(code))

    def _restart_later(self, child: Child, pid: int | None, **why: Any) -> None:
        wait_s = child.plan_restart(self._backoff)
        self._tell("worker.died", number=child.number, pid=pid, **why, restart_in_s=wait_s)

    def _stop(self) -> None:
        self._stopping = True
        self._tell("supervisor.stopping")
        for child in self._children:
            child.terminate()

    def _kill(self, number: int) -> int:
        self._tell("supervisor.killing")
        for child in self._children:
            child.kill()
        for child in self._children:
            child.wait(_KILLED_WITHIN_S)
        return 128 + number

    def _tell(self, name: str, **facts: Any) -> None:
        if self._events:
            self._events.emit(name, **facts)

    def _sleep(self, wake: socket.socket) -> None:
        """Until a signal, a child's word, or the next planned start."""
        due = [child.starts_at_s for child in self._children if child.starts_at_s is not None]
        timeout_s = max(0.0, min(due) - self._clock.monotonic_s()) if due else None
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            for child in self._children:
                if child.pipe is not None:
                    selector.register(child.pipe, selectors.EVENT_READ)
            selector.select(timeout_s)
        with suppress(BlockingIOError):
            while wake.recv(4096):
                pass

    @contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """Notes signals, and makes each wake who sleeps on the socket; restores all afterwards."""

        def on_signal(number: int, _frame: FrameType | None) -> None:
            if number != signal.SIGCHLD:
                self._heard.append(number)

        wake, woken = socket.socketpair()
        with wake, woken:
            wake.setblocking(False)
            woken.setblocking(False)
            fd_before = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
            before: dict[int, Any] = {
                each: signal.signal(each, on_signal) for each in (*_SIGNALS, signal.SIGCHLD)
            }
            try:
                yield wake
            finally:
                for each, handler in before.items():
                    signal.signal(each, handler)
                signal.set_wakeup_fd(fd_before)


def _how(code: int) -> dict[str, Any]:
    """How a process ended, in words: its exit code, or the signal that killed it."""
    if code >= 0:
        return {"exit_code": code}
    names = {each.value: each.name for each in signal.Signals}
    return {"signal": names.get(-code, str(-code))}
