"""Events: parts emit them, and `telemetry` makes log lines of them.

An event nobody hears costs one `if`:

    if events:
        events.emit("delivery.stale", topic=topic, group=group, count=3)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

LOGGER: Final = "qframe.events"

Listener = Callable[[str, dict[str, Any]], None]


class Events:
    """Hands each event to every listener, in the thread where it happens."""

    def __init__(self) -> None:
        # By keys of their own: workers and pulls come and go in threads, and no change may be lost.
        self._listeners: dict[object, Listener] = {}
        self._counters: dict[object, Listener] = {}

    @property
    def is_told(self) -> bool:
        """Whether somebody listens who may tell people, and does not only count."""
        return len(self._listeners) > len(self._counters)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Adds a listener, `listener(name, facts)`; returns the function that removes it."""
        key = object()
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def count(self, counter: Listener) -> Callable[[], None]:
        """Adds a listener that only counts: without another one, an app still writes its log.

        Returns:
            The function that removes it.
        """
        key = object()
        self._counters[key] = counter
        unlisten = self.listen(counter)

        def stop() -> None:
            self._counters.pop(key, None)
            unlisten()

        return stop

    def emit(self, name: str, **facts: Any) -> None:
        """Tells every listener that `name` happened, with its facts; logs one that raises."""
        for listener in list(self._listeners.values()):
            try:
                listener(name, facts)
            except Exception:  # what happened has happened, and others are to hear of it
                logging.getLogger(LOGGER).exception("a listener failed at the event %s", name)
