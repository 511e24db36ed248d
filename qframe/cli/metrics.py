"""`qframe store metrics`, and the metrics of `qframe worker`: a port for what a process counts."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, Final

from qframe.app.qframe import QFrame
from qframe.cli.modules import apps_of
from qframe.cli.output import say_aside, say_error
from qframe.cli.target import Target, coordinated
from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadOption
from qframe.events import Events
from qframe.http_port import HttpPort, HttpRoute, address_of
from qframe.outbox.open import inspector_of
from qframe.service import LAST_WORDS_S
from qframe.stores.base import Store
from qframe.telemetry.meters import Meters
from qframe.telemetry.metrics_folder import FolderCollector, MetricsWriter
from qframe.telemetry.prometheus import (
    FamilyCollector,
    check_installed,
    page,
    process_registry,
    registry_of,
)
from qframe.telemetry.store_numbers import StoreNumbers
from qframe.verbs.parameters import argument, option

if TYPE_CHECKING:
    from prometheus_client.registry import CollectorRegistry

    from qframe.outbox.outbox import Outbox

METRICS_PORT: Final = "--metrics-port"
PATH: Final = "/metrics"
MOST_WAITING: Final = 1000

MetricsPort = Annotated[
    str | None,
    option(
        metavar="[HOST:]PORT", help="Serve the numbers of all workers for Prometheus, at /metrics."
    ),
]


@coordinated
def metrics(
    target: Target,
    modules: Annotated[
        list[str] | None,
        argument("MODULE", "Modules whose outboxes are counted too."),
    ] = None,
    port: Annotated[
        str, option(metavar="[HOST:]PORT", help="Where Prometheus finds /metrics.")
    ] = "9109",
) -> None:
    """Serves the store's numbers for Prometheus.

    It does so until SIGTERM or Ctrl-C. The numbers are true though no worker lives: one such
    process is enough for a store. The port of `qframe worker --metrics-port` has those of workers.
    """
    check_installed("--port", port)
    address_of("--port", port)  # a wrong one is refused before modules are imported
    apps = apps_of(modules) if modules else []
    with target.opened() as app:
        outboxes = [CountedOutbox(outbox, app.store) for each in apps for outbox in each.outboxes]
        numbers = StoreNumbers(
            app.store, outboxes=outboxes, clock=SYSTEM_CLOCK,
            roster=lambda topic, group: app.coordinator.roster(topic, group),
        )  # fmt: skip
        registry = registry_of(FamilyCollector(numbers.families))
        with served("--port", port, registry, app.events), heard_signals() as heard:
            say_aside(f"serving {PATH} at {port}")
            heard.get()


class CountedOutbox:
    """An outbox whose waiting messages are counted, up to 1,000 of them.

    Args:
        outbox: the outbox.
        store: knows why a topic refuses a message.
    """

    def __init__(self, outbox: Outbox, store: Store) -> None:
        self.name: str = outbox.prefix
        self._inspector = inspector_of(outbox, store)

    def numbers(self) -> tuple[int, int]:
        """How many messages wait, and how many of them are refused."""
        waiting = self._inspector.waiting(MOST_WAITING)
        return len(waiting), sum(each.refused is not None for each in waiting)


@contextmanager
def counted(
    apps: Sequence[QFrame], *, port: str | None, folder: str | None, number: int
) -> Iterator[None]:
    """Counts what a worker process does while the block runs, and shows it.

    Args:
        apps: the apps that the process serves.
        port: where it is shown, in a process without a supervisor.
        folder: where it is written for a supervisor.
        number: the process's number.

    Raises:
        BadOption: if `port` is none, or cannot be bound.
    """
    if folder is not None:
        writer = MetricsWriter(
            Path(folder), number, collectors=[process_registry()], on_failure=_say_failure
        )
        meters = Meters(SYSTEM_CLOCK, writer.make_cells)
        for app in apps:
            app.measure(meters)
        writer.collectors.append(FamilyCollector(meters.families))
        writer.start()
        try:
            yield
        finally:
            writer.stop(LAST_WORDS_S)
    elif port is not None:
        check_installed(METRICS_PORT, port)
        meters = Meters(SYSTEM_CLOCK)
        for app in apps:
            app.measure(meters)
        registry = registry_of(process_registry(), FamilyCollector(meters.families))
        with served(METRICS_PORT, port, registry, apps[0].events):
            yield
    else:
        yield


@contextmanager
def added_up(port: str | None) -> Iterator[list[str]]:
    """Shows the sums of all workers of a supervisor; yields what each worker is told for it.

    Raises:
        BadOption: if `port` is none, or cannot be bound.
    """
    if port is None:
        yield []
        return
    check_installed(METRICS_PORT, port)
    with _private_folder(port) as folder:
        registry = registry_of(FolderCollector(Path(folder)))
        with served(METRICS_PORT, port, registry, Events()):
            yield [f"--metrics-folder={folder}"]


def _private_folder(port: str) -> tempfile.TemporaryDirectory[str]:
    """A folder for the numbers of workers, removed at its end.

    Raises:
        BadOption: if there is no place for one.
    """
    try:
        return tempfile.TemporaryDirectory(prefix="qframe-metrics-")
    except OSError as error:
        raise BadOption(
            METRICS_PORT, port, "there is no folder in which the workers could write their numbers "
            f"({error.strerror})", "set TMPDIR to one, such as a tmpfs in memory",
        ) from error  # fmt: skip


def _say_failure(part: str, error: BaseException) -> None:
    say_error(f"{part} has ended: {type(error).__name__}")


@contextmanager
def heard_signals() -> Iterator[SimpleQueue[int]]:
    """A queue that gets each SIGTERM and SIGINT while the block runs."""
    heard: SimpleQueue[int] = SimpleQueue()  # no Event: a handler might wait for its own thread
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda got, _: heard.put(got)) for number in numbers}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def served(
    option: str, address: str, registry: CollectorRegistry, events: Events
) -> Iterator[HttpPort]:
    """Serves a registry while the block runs.

    Raises:
        BadOption: if the address is none, or cannot be bound.
    """
    routes: dict[str, HttpRoute] = {PATH: page(registry)}
    port = HttpPort(
        option, address_of(option, address), routes, events=events, on_failure=_say_failure
    )
    port.start()
    try:
        yield port
    finally:
        port.close()
