"""Connections to PostgreSQL that do not wait for ever for a server that says nothing."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from qframe.clock import SYSTEM_CLOCK

Steps = Generator[Any, Any, Any]


def connection_of(psycopg: Any, silent_s: float) -> Any:
    """The class of connections with a limit of silence, at first `silent_s`.

    The system notices a host that has vanished. It takes a server that is frozen, and a proxy that
    has forgotten the connection, for one that is busy.
    """

    class Connection(psycopg.Connection):  # type: ignore[misc, name-defined, unused-ignore]
        """A connection that is closed once its server was silent for `silent_s`, unless None."""

        silent_s: float | None

        def wait(self, gen: Steps, *args: Any, **kwargs: Any) -> Any:
            return super().wait(self._heard(gen), *args, **kwargs)

        def _heard(self, steps: Steps) -> Steps:
            since_s: float | None = None
            try:
                wanted = next(steps)
                while True:
                    ready = yield wanted
                    if ready:
                        since_s = None
                    elif since_s is None:
                        since_s = SYSTEM_CLOCK.monotonic_s()
                    elif self.silent_s and SYSTEM_CLOCK.monotonic_s() - since_s > self.silent_s:
                        self.close()
                        raise psycopg.OperationalError(f"no reply within {self.silent_s:.0f} s")
                    wanted = steps.send(ready)
            except StopIteration as end:
                return end.value

    Connection.silent_s = silent_s
    return Connection
