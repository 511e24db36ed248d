"""`qframe worker`: serves the consumers of the modules that it is given."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Annotated

import typer

from qframe.app import QFrame
from qframe.cli.flags import Config, Coordinator, Namespace, Store, choose
from qframe.cli.modules import apps_of
from qframe.cli.serving import serve
from qframe.cli.times import duration_of
from qframe.clock import SYSTEM_CLOCK
from qframe.errors import CoordinatorUnavailable, NotSupported, StoreUnavailable
from qframe.telemetry.logs import log_events
from qframe.topic import duration_ms


def worker(
    modules: Annotated[
        list[str], typer.Argument(metavar="MODULE", help="Such as shop.orders, or shop:app.")
    ],
    burst: Annotated[
        bool, typer.Option("--burst", help="End when nothing is due or waits for a retry.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when nothing waits at all, timers included.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many workers to run.")
    ] = 1,
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for store and coordinator.")
    ] = "0",
    store: Store = None,
    coordinator: Coordinator = None,
    namespace: Namespace = None,
    config: Config = None,
) -> None:
    """Serves the consumers of modules, until SIGTERM or Ctrl-C.

    It then finishes what it has begun; a second signal ends it at once.
    """
    if processes > 1:
        raise NotSupported(
            "--processes beyond 1", "run one process, and set threads= of its consumers"
        )
    wait_ms = duration_ms(duration_of(wait) or 0, "wait")
    settings = choose(store, namespace, config, coordinator)
    apps = apps_of(modules)
    with ExitStack() as stack:
        for app in apps:
            stack.callback(app.close)
            stack.callback(log_events(app.events, settings))
            _wait_for_both(app, wait_ms)
        serve(apps, burst=burst, drain=drain)


def _wait_for_both(app: QFrame, wait_ms: int) -> None:
    """Returns when store and coordinator answer; the last error is raised when time is over."""
    until_s = SYSTEM_CLOCK.monotonic_s() + wait_ms / 1000
    pause = threading.Event()
    while True:
        try:
            app.store.now_ms()
            app.coordinator.check()
        except (StoreUnavailable, CoordinatorUnavailable):
            if SYSTEM_CLOCK.monotonic_s() >= until_s:
                raise
            pause.wait(0.25)
        else:
            return
