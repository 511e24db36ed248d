"""`qframe worker --processes N`: what the supervisor starts, and what each child owes it.

A child is the same command with its number and its line to the supervisor as two more options.
Store and namespace reach it by the environment, as `choose` has set it: everybody may read a
command line, and a URL may hold a password. So both hide their own command lines by a title, too.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from setproctitle import setproctitle

from qframe.app.qframe import QFrame
from qframe.cli.modules import refuse_absent
from qframe.clock import SYSTEM_CLOCK
from qframe.events import Events
from qframe.options.settings import PREFIX, Settings
from qframe.runtime.process.health import Health
from qframe.runtime.process.probes import Systemd
from qframe.runtime.process.supervisor import Supervisor
from qframe.runtime.process.supervisor_pipe import SupervisorPipe
from qframe.telemetry.logs import log_events


def supervise(
    modules: Sequence[str], settings: Settings, *, processes: int, ends: bool, words: Sequence[str],
    told: Callable[[Callable[[], Health]], AbstractContextManager[None]],
) -> int:  # fmt: skip
    """Runs so many workers until they are stopped or done; returns the exit code.

    Args:
        modules: what each of them serves; this process imports none of it.
        settings: for the log, and the instance whose name is the beginning of theirs.
        processes: how many.
        ends: whether a worker that ends with exit code 0 is done.
        words: further options for each of them, free of secrets.
        told: a context in which others are told of the health that is looked at.

    Raises:
        BadModule: if there can be no such module.
    """
    refuse_absent(modules)
    setproctitle(f"qframe: supervisor {' '.join(modules)} ({processes} workers)")
    started = program()
    instance = settings.instance or socket.gethostname()

    def command(number: int, fd: int) -> list[str]:
        numbered = [
            "--processes",
            str(processes),
            "--number",
            str(number),
            "--supervisor-pipe",
            str(fd),
        ]
        return [*started, "worker", *modules, *words, *numbered]

    def environment(number: int) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if name not in Systemd.VARIABLES}
        return {**kept, f"{PREFIX}INSTANCE": f"{instance}-{number}"}

    events = Events()
    end_log = log_events(events, settings)
    try:
        supervisor = Supervisor(
            processes=processes, command=command, environment=environment, ends=ends,
            events=events, clock=SYSTEM_CLOCK,
        )  # fmt: skip
        with told(supervisor.health):
            return supervisor.run()
    finally:
        end_log()


def program() -> list[str]:
    """How this process was started, up to its command: the interpreter, its flags, the program."""
    words = sys.argv[1:]
    if words and sys.orig_argv[-len(words) :] == words:
        return [sys.executable, *sys.orig_argv[1 : -len(words)]]
    return [sys.executable, "-m", "qframe"]


def name_worker(modules: Sequence[str], number: int, processes: int) -> None:
    """Gives this process its title, in place of a command line that may hold a password."""
    place = f"{number}/{processes} " if processes > 1 else ""
    setproctitle(f"qframe: worker {place}{' '.join(modules)}")


@contextmanager
def held(fd: int, settings: Settings) -> Iterator[SupervisorPipe]:
    """A child's line to its supervisor: if that is gone, this process stops as on SIGTERM."""
    events = Events()
    end_log = log_events(events, settings)

    def stop(*_: object) -> None:
        events.emit("worker.orphaned", pid=os.getpid())
        os.kill(os.getpid(), signal.SIGTERM)

    line = SupervisorPipe(fd, on_lost=stop, on_failure=stop)
    line.start()
    try:
        yield line
    finally:
        line.close()
        end_log()


def say_when_ready(apps: Sequence[QFrame], line: SupervisorPipe) -> None:
    """Tells the supervisor once all apps serve."""
    starting = set(range(len(apps)))

    def hear(number: int, name: str, _facts: dict[str, Any]) -> None:
        if name == "worker.ready":
            starting.discard(number)
            if not starting:
                line.ready()

    for number, app in enumerate(apps):
        app.events.listen(partial(hear, number))
