"""Running the apps of one worker process, one or several, until all have ended."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType

from qframe.app.qframe import QFrame


def serve(apps: Sequence[QFrame], *, burst: bool, drain: bool, supervised: bool = False) -> None:
    """Runs all apps; the first signal stops them all, the second ends the process.

    Args:
        apps: the apps.
        burst: return when nothing is due, leased or waiting for a retry.
        drain: return when nothing waits at all.
        supervised: whether signals after the first one are ignored. A signal to a supervisor may
            reach its children twice, and must not end a child that is stopping: only the
            supervisor kills.

    Raises:
        QFrameError: what the first one that failed has raised, once all have stopped.
    """
    if len(apps) == 1 and not supervised:
        apps[0].run(burst=burst, drain=drain)
        return
    heard: list[int] = []  # no Event: a handler that sets one may wait for whom it interrupts
    failures: list[BaseException] = []

    def run(app: QFrame) -> None:
        try:
            app.run(burst=burst, drain=drain)
        except BaseException as error:  # raised again by the thread that can tell it
            failures.append(error)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if heard and not supervised:
            os._exit(128 + number)
        heard.append(number)

    # An app hears signals in the main thread only, and here it is not the app that runs there.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    threads = [
        threading.Thread(target=run, args=(app,), name=f"qframe.app.{number}", daemon=True)
        for number, app in enumerate(apps, start=1)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for app, thread in zip(apps, threads, strict=True):
            if heard or failures:
                app.stop()  # said again until it is heard: one that only starts does not hear it
            thread.join(0.1)
    if failures:
        raise failures[0]
