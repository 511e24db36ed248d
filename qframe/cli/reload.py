"""`qframe worker --reload`: a worker that is started again when a file of its modules changes.

For development only. The worker is a process of its own, executed anew each time, so no module of
the state before is left. Files are looked at twice a second: that needs no other package, and works
on every file system.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from qframe.cli.modules import refuse_absent
from qframe.events import Events

EVERY_S: Final = 0.5
_NOT_OURS: Final = frozenset({"site-packages", "node_modules", "__pycache__"})

Seen = dict[Path, tuple[int, int]]


def reload(command: Sequence[str], modules: Sequence[str], events: Events) -> int:
    """Runs a command again and again, as files of modules change, until it is stopped or done.

    A worker that ends with an error is started again after the next change.

    Args:
        command: the worker's command line.
        modules: what it serves; this process imports none of it.
        events: told of each further start.

    Returns:
        The exit code of the worker.

    Raises:
        BadModule: if there can be no such module.
    """
    refuse_absent(modules)
    folders = sorted({folder for name in modules for folder in _folders(name)})
    workers: list[subprocess.Popen[bytes]] = []
    heard: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        heard.append(number)
        # Ctrl-C in a terminal reaches the worker by itself, and a second signal ends it at once.
        is_told = number == signal.SIGINT and len(heard) == 1 and _has_the_terminal()
        if workers and not is_told:
            workers[-1].send_signal(number)

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        while True:
            seen = look(folders)
            workers.append(subprocess.Popen(command))  # noqa: S603 - this program's own command
            code = _code_unless_changed(workers[-1], folders, seen, heard)
            if code == 0 or heard:
                return code or 0
            while code is not None and look(folders) == seen and not heard:
                time.sleep(EVERY_S)  # an error: nothing helps but a change
            if code is None:
                workers[-1].terminate()
                code = workers[-1].wait()
            if heard:
                return code
            events.emit("worker.reloaded", worker=workers.pop().pid)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_the_terminal() -> bool:
    """Whether Ctrl-C in a terminal is sent to this process, and so to all of its group."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _code_unless_changed(
    worker: subprocess.Popen[bytes], folders: Sequence[Path], seen: Seen, heard: Sequence[int]
) -> int | None:
    """How the worker has ended; None if a file has changed before."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return worker.wait(EVERY_S)
        if not heard and look(folders) != seen:
            return None


def look(folders: Sequence[Path]) -> Seen:
    """The Python files below folders, with time and size of each."""
    found: Seen = {}
    for folder in folders:
        for path in _files(folder):
            with suppress(OSError):  # it was removed just now
                status = path.stat()
                found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _files(folder: Path) -> Iterator[Path]:
    for here, names, files in os.walk(folder):
        names[:] = [
            name
            for name in names
            if name not in _NOT_OURS
            and not name.startswith(".")
            and not Path(here, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(here, name) for name in files if name.endswith(".py"))


def _folders(name: str) -> list[Path]:
    """The folder of a module: its topmost package, or the folder of a single module."""
    spec = importlib.util.find_spec(name.partition(":")[0].partition(".")[0])
    if spec is None:
        return []
    if spec.submodule_search_locations:
        return [Path(each) for each in spec.submodule_search_locations]
    return [Path(spec.origin).parent] if spec.origin else []
