"""Jobs: retries and drops of many dead letters, which go on while their page shows progress.

A job runs in a thread of this process, in steps of 500, and can be stopped between two. The page
finds it by its number; the last hundred are kept. Of a process that ends in the middle everything
is done up to a step, and the audit event is written for that.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from qframe.admin.dead import Progress
from qframe.errors import QFrameError

_KEPT: Final = 100


class _Stopped(Exception):
    """Ends a job between two steps."""


class Job:
    """One retry or drop of many dead letters.

    Attributes:
        number: by which its page finds it.
        verb: what it does: `retry` or `drop`.
        topic, group: whose dead letters.
        total: how many dead letters it was given, as its page counted them.
        done: how many are done.
        state: `running`, `done`, `stopped` or `failed`.
        error: why it has failed.
    """

    def __init__(self, verb: str, topic: str, group: str, total: int) -> None:
        self.number = secrets.token_hex(8)
        self.verb = verb
        self.topic = topic
        self.group = group
        self.total = total
        self.done = 0
        self.state = "running"
        self.error = ""
        self._stopping = False

    def stop(self) -> None:
        """Ends it after its next step."""
        self._stopping = True

    def run(self, act: Callable[[Progress], int]) -> None:
        """Runs it to its end."""
        try:
            self.done = act(self._advance)
            self.state = "done"
        except _Stopped:
            self.state = "stopped"
        except QFrameError as error:
            self.state, self.error = "failed", str(error)
        finally:
            if self.state == "running":  # what is no error of ours: its thread tells
                self.state, self.error = "failed", "it has ended by an unforeseen error"

    def _advance(self, done: int) -> None:
        self.done = done
        if self._stopping:
            raise _Stopped


class Jobs:
    """The last jobs of this process.

    Args:
        on_end: called when one has ended.
    """

    def __init__(self, on_end: Callable[[], object]) -> None:
        self._on_end = on_end
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._guard = threading.Lock()

    def start(
        self, verb: str, topic: str, group: str, total: int, act: Callable[[Progress], int]
    ) -> Job:
        """Starts a job.

        Args:
            verb: what it does, for its page.
            topic: the topic.
            group: the group.
            total: how many it was given.
            act: does it, and calls what it is given after each step.
        """
        job = Job(verb, topic, group, total)
        with self._guard:
            self._jobs[job.number] = job
            while len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)
        threading.Thread(
            target=self._run, args=(job, act), name=f"qframe.console.{verb}", daemon=True
        ).start()
        return job

    def _run(self, job: Job, act: Callable[[Progress], int]) -> None:
        try:
            job.run(act)
        finally:
            self._on_end()

    def find(self, number: str) -> Job | None:
        """The job of a number, if it is this process's."""
        with self._guard:
            return self._jobs.get(number)
