"""Running the apps of one worker process, one or several, until all have ended."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from types import FrameType

from qframe.app import QFrame


def serve(apps: Sequence[QFrame], *, burst: bool, drain: bool) -> None:
    """Runs all apps; the first signal stops them all, the second ends the process.

    Raises:
        QFrameError: what the first one that failed has raised, once all have stopped.
    """
    if len(apps) == 1:
        apps[0].run(burst=burst, drain=drain)
        return
    stopping = threading.Event()
    failures: list[BaseException] = []

    def run(app: QFrame) -> None:
        try:
            app.run(burst=burst, drain=drain)
        except BaseException as error:  # raised again by the thread that can tell it
            failures.append(error)
            stopping.set()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    # An app hears signals in the main thread only, and here there are several.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    threads = [
        threading.Thread(target=run, args=(app,), name=f"qframe.app.{number}", daemon=True)
        for number, app in enumerate(apps, start=1)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stopping.wait(0.1)
        for app, thread in zip(apps, threads, strict=True):
            if stopping.is_set():
                app.stop()  # said again until it is heard: one that only starts does not hear it
                thread.join(0.1)
    if failures:
        raise failures[0]
