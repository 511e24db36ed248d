"""What is set for groups in the store, applied to the lines of a worker while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from qframe.errors import BadOption, StoreUnavailable
from qframe.events import Events
from qframe.options.tuning import Tuning, tuning_of
from qframe.runtime.consume.line import Line
from qframe.service import Service
from qframe.stores.base import Store
from qframe.topic import Topic

EVERY_S: Final = 1.0


class Dial:
    """One line's tuning: what was applied to it last.

    What is wrong (written by hand, or by a later version) is told once and changes nothing else.

    Args:
        line: the line.
        events: told of what was changed, and of what is wrong.
    """

    def __init__(self, line: Line, events: Events) -> None:
        self._line = line
        self._events = events
        self._texts: Mapping[str, str] = {}
        self._applied = Tuning()
        self._where = {"topic": line.topic, "group": line.group}

    def turn(self, texts: Mapping[str, str]) -> None:
        """Applies what is set now, if it differs from what was."""
        if texts == self._texts:
            return
        self._texts = dict(texts)
        tuning, wrong = tuning_of(texts)
        line, before = self._line, self._applied
        self._applied = tuning
        try:
            line.pool.resize(tuning.threads)
        except BadOption as error:
            wrong.append(error)
            line.pool.resize(None)
        try:
            line.flow.set_rate(tuning.rate)
        except BadOption as error:
            wrong.append(error)
            line.flow.set_rate(None)
        line.in_flight.resize(tuning.in_flight)
        if tuning.paused:
            line.flow.pause()
        else:
            line.flow.resume()
        if self._events:
            self._tell(before, tuning, wrong)

    def _tell(self, before: Tuning, tuning: Tuning, wrong: list[BadOption]) -> None:
        """Says what was set, and what is wrong; the line's flow says itself that it is paused."""
        facts = {name: getattr(tuning, name) for name in ("threads", "rate", "in_flight")}
        if any(getattr(before, name) != value for name, value in facts.items()):
            self._events.emit("consumer.tuned", **facts, **self._where)
        for error in wrong:
            self._events.emit("tuning.ignored", error=str(error), **self._where)


class Tuner(Service):
    """Asks the store every second, in one call for all lines, what is set for them.

    Args:
        lines: the worker's, each with its topic.
        store: the store.
        events: told of what was changed.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        *,
        lines: Sequence[tuple[Topic, Line]],
        store: Store,
        events: Events,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__("qframe.tuner", on_failure)
        self._store = store
        self._asked = [(topic, line.group) for topic, line in lines]
        self._dials = [Dial(line, events) for _, line in lines]

    def begin(self) -> None:
        """Applies what is set before the lines begin, and goes on with that from now on.

        Raises:
            StoreUnavailable: if the store cannot be reached.
        """
        self._look()
        self.start()

    def run(self) -> None:
        """Looks until it is stopped."""
        while not self._stopping.wait(EVERY_S):
            try:
                self._look()
            except StoreUnavailable:
                continue  # the lines say so, and go on as they were told last

    def _look(self) -> None:
        found = self._store.tunings(self._asked) if self._asked else []
        for dial, texts in zip(self._dials, found, strict=True):
            if texts is not None and not self.stopping:
                dial.turn(texts)
