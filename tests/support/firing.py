"""Worker processes that write down which timers they handle, and when."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

from qframe import Message, QFrame, Topic

TIMERS = Topic("timers", "delay", slots=4)
GROUP = "g"


def work(store: str, timers_db: str, file: str) -> None:
    """A worker process: writes down what it handles, and when."""
    app = QFrame(store, timers_db=timers_db, session_timeout=1)
    seen = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @app.consumer(TIMERS, group=GROUP, threads=2)
    def handle(message: Message) -> None:
        line = f"{message.key} {message.body} {time.time() * 1000:.0f} {message.attempt}\n"
        os.write(seen, line.encode())

    app.run()


class Fired:
    """What workers have written down: by key, the due times and the moments, each once handled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def lines(self) -> list[list[str]]:
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        return [line.split() for line in text.splitlines()]

    def keys(self) -> Counter[str]:
        return Counter(key for key, *_ in self.lines())

    def early(self) -> list[list[str]]:
        return [line for line in self.lines() if int(line[2]) < int(line[1])]
