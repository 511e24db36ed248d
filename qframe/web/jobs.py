"""Jobs: what is done to many dead letters or timers, which goes on while its page shows progress.

A job runs in a thread of this process, in steps of 500, and can be stopped between two. Eight run
at once, at most four of one visitor. The page finds a job by its number. The last hundred are kept;
of more the oldest one that has ended is forgotten, of the visitor that has most. Of a process that
ends in the middle everything is done up to a step, and the audit event is written for that.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from qframe.admin.dead import Progress
from qframe.admin.rights import Right
from qframe.errors import BadOption, QFrameError
from qframe.shares import Share

RUNNING: Final = 8
_KEPT: Final = 100


class _Stopped(Exception):
    """Ends a job between two steps."""


class JobTask(NamedTuple):
    """The work of a job.

    Attributes:
        verb: what it does: `retry`, `drop`, `move` or `cancel`.
        right: the right that it needs, and that stopping it needs.
        topic: whose messages.
        group: whose dead letters; None where it is about timers.
        total: how many it was given, as its page counted them; 0 where nobody has.
        is_dry: whether it only counts.
        form: the fields that do the same for good, where it only counts.
    """

    verb: str
    right: Right
    topic: str
    group: str | None
    total: int = 0
    is_dry: bool = False
    form: Mapping[str, str] = {}


class Job:
    """Something that is done to many messages.

    Attributes:
        number: by which its page finds it.
        task: what it does.
        by: the visitor who has started it.
        done: how many are done.
        state: `running`, `done`, `stopped` or `failed`.
        error: why it has failed.
        remark: what else there is to say at its end.
    """

    def __init__(self, task: JobTask, by: str) -> None:
        self.number = secrets.token_hex(8)
        self.task = task
        self.by = by
        self.done = 0
        self.state = "running"
        self.error = ""
        self.remark = ""
        self._stopping = False

    def stop(self) -> None:
        """Ends it after its next step."""
        self._stopping = True

    def run(self, act: Callable[[Progress], tuple[int, str]]) -> None:
        """Runs it to its end."""
        try:
            self.done, self.remark = act(self._advance)
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
        self._jobs: dict[str, Job] = {}
        self._running = Share(RUNNING)
        self._guard = threading.Lock()

    def start(self, task: JobTask, act: Callable[[Progress], tuple[int, str]], *, by: str) -> Job:
        """Starts a job.

        Args:
            task: what it does.
            act: does it, calls what it is given after each step, and returns how many are done and
                what else there is to say.
            by: the visitor whose job it is.

        Raises:
            BadOption: if as many of this visitor's jobs run as one may have at once.
        """
        job = Job(task, by)
        if not self._running.take(by):
            raise BadOption(
                "job", task.verb, "as many jobs of yours run as one may have at once",
                "wait until one has ended, or stop one",
            )  # fmt: skip
        with self._guard:
            self._jobs[job.number] = job
            if len(self._jobs) > _KEPT:
                self._forget_one()
        threading.Thread(
            target=self._run, args=(job, act), name=f"qframe.console.{task.verb}", daemon=True
        ).start()
        return job

    def _forget_one(self) -> None:
        ended = [each for each in self._jobs.values() if each.state != "running"]
        [(visitor, _)] = Counter(each.by for each in ended).most_common(1)
        del self._jobs[next(each.number for each in ended if each.by == visitor)]

    def _run(self, job: Job, act: Callable[[Progress], tuple[int, str]]) -> None:
        try:
            job.run(act)
        finally:
            self._running.give_back(job.by)
            self._on_end()

    def find(self, number: str) -> Job | None:
        """The job of a number, if it is this process's."""
        with self._guard:
            return self._jobs.get(number)
