"""The one thread of a run: tasks hand over to it where they wait, and it decides who is next."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush, heappushpop
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

MOST_STEPS = 400_000
Entry = tuple[float, int, Any, int, Any]
"""Of the heap: when, its number, a task and its token, or an action, and what it is told."""
OFTEN = 40
"""At every so many locks a task is made to wait, as a thread is whose turn is over."""

IN_HUB, ANYWHERE = -1, -2
"""Of an action in the heap, in place of a task's token: where it may be done."""


class Stuck(AssertionError):
    """Raised when tasks go on and on, and time does not."""


class Process:
    """What dies, or stands still, as one: its tasks and its clock.

    Args:
        name: for the history.
        scheduler: the run's.
        rate: how many seconds pass on its clock in one second of the run.

    Attributes:
        dead: whether it was killed, or has ended.
        frozen_until: until when none of its tasks goes on.
        jumped_ms: how far its wall clock was set, forward or back.
        monotonic_s: its monotonic clock.
    """

    def __init__(self, name: str, scheduler: Scheduler, rate: float = 1.0) -> None:
        self.name = name
        self.scheduler = scheduler
        self.rate = rate
        self.dead = False
        self.frozen_until = 0.0
        self.jumped_ms = 0
        self.tasks: list[Task] = []
        scheduler.processes.append(self)
        # Thousands of looks at it in a run: so it looks nothing up but the time.
        self.monotonic_s: Callable[[], float] = lambda: 1000.0 + scheduler.now * rate

    def now_ms(self) -> int:
        """Its wall clock."""
        return 1_700_000_000_000 + self.jumped_ms + int(self.scheduler.now * self.rate * 1000)


class Task:
    """One thread of a process: a greenlet, and what it waits for."""

    __slots__ = (
        "_function", "ended", "greenlet", "joiners", "name", "process", "switch", "thread", "token",
        "waits",
    )  # fmt: skip

    def __init__(self, process: Process, function: Callable[[], object], name: str) -> None:
        self.process = process
        self.name = name
        self.token = 0
        self.waits = False
        self.ended = False
        self.joiners: list[Task] = []
        self.thread: object = self
        self._function = function
        self.greenlet = greenlet(self._run, process.scheduler.hub)
        self.switch = self.greenlet.switch

    def _run(self, _: object = None) -> None:
        scheduler = self.process.scheduler
        try:
            self._function()
        except GreenletExit:
            pass
        except BaseException as error:  # of the simulator's own, or of a part without last words
            if not self.process.dead:
                scheduler.failure = scheduler.failure or error
        self.ended = True
        for task in self.joiners:
            scheduler.wake(task)


class Scheduler:
    """Virtual time, and whose turn it is: the same seed makes the same turns.

    Args:
        seed: of its draws.

    Attributes:
        now: seconds since the run began.
        current: the task whose turn it is.
        steps: how many turns there were.
        failure: what has ended the run.
        processes: all that there have been.
        left: how many locks are taken before the next turn ends.
    """

    def __init__(self, seed: object) -> None:
        self.now = 0.0
        self.steps = 0
        self.current: Task | None = None
        self.failure: BaseException | None = None
        self.processes: list[Process] = []
        self.random = Random(f"{seed}/turns")
        self._draw = self.random.random
        self.hub = getcurrent()
        self._heap: list[Entry] = []
        self._pushed = 0
        self._woken = False
        self.left = OFTEN
        self._most_steps = MOST_STEPS

    def spawn(self, process: Process, function: Callable[[], object], name: str) -> Task:
        """Begins a task; it gets its first turn soon."""
        task = Task(process, function, name)
        process.tasks.append(task)
        at = self.now + self._draw() * 1e-4
        if not process.dead:
            self._push(at, task, task.token, True)
        return task

    def at(self, when: float, action: Callable[[], object]) -> None:
        """Has something done between two turns; it may not wait."""
        self._push(max(self.now, when), action, IN_HUB, False)

    def arrives(self, after_s: float, action: Callable[[Any], Task | None], what: Any) -> None:
        """Has a small thing done between two turns, wherever; it fails never.

        The task that it returns, if it waits, has the next turn.
        """
        self._pushed = number = self._pushed + 1
        heappush(self._heap, (self.now + after_s, number, action, ANYWHERE, what))

    # For tasks.

    def block(self, timeout_s: float | None) -> bool:
        """Waits until it is woken, or for so long on its process's clock; whether it was woken."""
        task = self.current
        assert task is not None, "nobody's turn"
        process = task.process
        if process.dead:
            raise GreenletExit
        task.waits = True
        entry = None
        if timeout_s is not None:
            until = self.now + self._draw() * 1e-4
            if timeout_s > 0:
                until += timeout_s / process.rate
            self._pushed = number = self._pushed + 1
            entry = until, number, task, task.token, False
        # The next turn is given away without the hub, if it is a task's.
        following = self._next_task(entry)
        if following is task:
            woken = self._woken
        elif following is not None:
            woken = following.switch(self._woken)
        else:
            woken = self.hub.switch()
        if process.dead:
            raise GreenletExit
        return woken

    def _next_task(self, entry: Entry | None = None) -> Task | None:
        """Begins the next turn, and returns whose it is; None if an action comes first, or none.

        Args:
            entry: what is to come into the heap before that.
        """
        heap = self._heap
        if self.steps > self._most_steps or self.failure is not None:
            if entry is not None:
                heappush(heap, entry)
            return None
        if entry is not None:
            entry = heappushpop(heap, entry)
        elif heap:
            entry = heappop(heap)
        while entry is not None:
            at, number, task, token, woken = entry
            if token == ANYWHERE:
                if at > self.now:
                    self.now = at
                self.current = None
                task = task(woken)
                if task is None or not task.waits:
                    entry = heappop(heap) if heap else None
                    continue
                token, woken = task.token, True
            elif token == IN_HUB:
                heappush(heap, entry)
                return None
            elif token != task.token:
                entry = heappop(heap) if heap else None
                continue
            if (frozen_until := task.process.frozen_until) > at:
                entry = heappushpop(heap, (frozen_until, number, task, token, woken))
                continue
            if at > self.now:
                self.now = at
            self.steps += 1
            task.waits = False
            task.token = token + 1
            self.current = task
            self._woken = woken
            return task  # type: ignore[no-any-return]
        return None

    def sleep(self, seconds: float) -> None:
        """Lets others go on for so long."""
        self.block(seconds)

    def wake(self, task: Task) -> None:
        """Ends a task's wait."""
        if task.waits:
            task.waits = False
            task.token = token = task.token + 1
            self._pushed = number = self._pushed + 1
            heappush(self._heap, (self.now + self._draw() * 5e-5, number, task, token, True))

    def preempt(self) -> None:
        """A thread's turn is over: it may lose it to another one."""
        self.left = 1 + int(-math.log(1.0 - self._draw()) * OFTEN)
        self.block(self._draw() ** 4 * 0.02)

    # For whoever runs it.

    def run(self) -> None:
        """Gives turns until somebody calls `stop`, or something fails."""
        heap = self._heap
        while heap and self._most_steps >= 0:
            following = self._next_task()
            if following is not None:
                following.switch(self._woken)
                self.current = None
            elif heap and heap[0][3] == IN_HUB:
                at, _, action, _, _ = heappop(heap)
                self.now = max(self.now, at)
                action()
            if self.failure is not None:
                raise self.failure
            if self.steps > MOST_STEPS:
                raise Stuck(f"{self.steps} turns, and the run is not over at {self.now:.3f} s")

    def stop(self) -> None:
        """Ends `run`."""
        self._most_steps = -1

    def forget(self, process: Process) -> None:
        """A process has ended: none of its tasks has another turn."""
        process.dead = True
        for task in process.tasks:
            task.token += 1
            task.waits = False

    def kill(self, process: Process) -> None:
        """Ends all tasks of a process where they stand; between two turns only."""
        self.forget(process)
        for task in process.tasks:
            if not task.ended:
                self.current = task
                task.greenlet.throw(GreenletExit)
                self.current = None
        process.tasks.clear()

    def end(self) -> None:
        """Ends what stands still wherever: a greenlet that does is kept for ever, and all of it."""
        for process in self.processes:
            self.kill(process)

    def _push(self, at: float, what: Any, token: int, woken: bool) -> None:
        self._pushed += 1
        heappush(self._heap, (at, self._pushed, what, token, woken))
