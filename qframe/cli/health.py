"""`qframe worker --health-port` and `--health-file`: a worker tells how it is, systemd as well."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Annotated

from qframe.clock import SYSTEM_CLOCK
from qframe.events import Events
from qframe.http_port import HttpPort, HttpRoute, address_of
from qframe.options.settings import Settings
from qframe.runtime.process.health import Health
from qframe.runtime.process.probes import HealthFile, HealthReporter, Probes, Systemd
from qframe.telemetry.logs import log_events
from qframe.verbs.parameters import option
from qframe_ping import FILE_VARIABLE, PORT_VARIABLE

BEARER_VARIABLE = "QFRAME_HEALTH_TOKEN"

HealthPort = Annotated[
    str | None,
    option(
        "--health-port", metavar="PORT", variable=PORT_VARIABLE,
        help="Reply to /livez, /readyz, /startupz and /scale/TOPIC/GROUP here, such as 8080 or "
        f"127.0.0.1:8080. [{PORT_VARIABLE}]",
    ),
]  # fmt: skip
HealthFilePath = Annotated[
    str | None,
    option(
        "--health-file", metavar="FILE", variable=FILE_VARIABLE,
        help=f"Write the health to this file every second. [{FILE_VARIABLE}]",
    ),
]  # fmt: skip


@contextmanager
def told(
    look: Callable[[], Health],
    settings: Settings,
    *,
    port: str | None,
    file: str | None,
    routes: Mapping[str, HttpRoute],
) -> Iterator[None]:
    """A context in which this process tells how it is.

    Args:
        look: returns its health, at once.
        settings: for the log.
        port: where it replies by HTTP, if anywhere.
        file: the file to which it writes, if there is one.
        routes: what else it replies on that port.

    Raises:
        BadOption: if port or file cannot be used.
    """
    with ExitStack() as stack:
        events = Events()
        stack.callback(log_events(events, settings))

        def failed(part: str, error: BaseException) -> None:
            events.emit("part.failed", part=part, error=error)

        systemd = Systemd(os.environ)
        listeners = [systemd.tell]
        if port is not None:
            served = HttpPort(
                "--health-port", address_of("--health-port", port),
                {**Probes(look).routes(), **routes},
                token=os.environ.get(BEARER_VARIABLE, ""), events=events, on_failure=failed,
            )  # fmt: skip
            stack.callback(served.close)
            served.start()
        if file is not None:
            written = HealthFile(file, SYSTEM_CLOCK)
            stack.callback(written.remove)
            listeners.append(written.tell)
        reporter = HealthReporter(look, listeners, every_s=systemd.every_s, on_failure=failed)
        stack.callback(reporter.stop, 1.0)
        stack.callback(systemd.stopping)
        reporter.start()
        yield


@contextmanager
def reported(look: Callable[[], Health], tell: Callable[[Health], None]) -> Iterator[None]:
    """A context in which a child tells its supervisor how it is."""

    def failed(*_: object) -> None:
        """Its silence tells the supervisor."""

    reporter = HealthReporter(look, [tell], on_failure=failed)
    reporter.start()
    try:
        yield
    finally:
        reporter.stop(1.0)
