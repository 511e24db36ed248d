"""The progress line while the handlers work."""

from __future__ import annotations

import threading
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from qframe import NeedRetry


def bars(console: Console) -> Progress:
    """Progress bars, one below the other."""
    return Progress(
        TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), console=console,
    )  # fmt: skip


class Watch:
    """Listens to the app's events, from all of its threads; moves a bar per group."""

    def __init__(self, progress: Progress, groups: tuple[str, ...], messages: int) -> None:
        self.on_purpose = 0
        self.by_accident: list[BaseException] = []
        self._guard = threading.Lock()
        self._progress = progress
        self._messages = messages
        self._done = dict.fromkeys(groups, 0)
        self._tasks = {
            group: progress.add_task(f"handling: {group}", total=messages) for group in groups
        }

    def __call__(self, name: str, facts: dict[str, Any]) -> None:
        """Hears one event."""
        with self._guard:
            if name == "delivery.settled":
                self._advance(facts["group"], facts["count"])
            elif name == "delivery.retried":
                self._advance(facts["group"], -1)  # it is settled too, but not done
                if isinstance(facts["error"], NeedRetry):
                    self.on_purpose += 1
                else:
                    self.by_accident.append(facts["error"])

    def _advance(self, group: str, count: int) -> None:
        self._done[group] += count
        shown = min(self._messages, max(0, self._done[group]))
        self._progress.update(self._tasks[group], completed=shown)
