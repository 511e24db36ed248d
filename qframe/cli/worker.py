"""`qframe worker`: serves the consumers of the modules that it is given."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from qframe.cli.flags import Config, Namespace, Store, choose
from qframe.cli.modules import apps_of
from qframe.errors import BadModule, NotSupported
from qframe.telemetry.logs import log_events


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
    store: Store = None,
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
    settings = choose(store, namespace, config)
    apps = apps_of(modules)
    if len(apps) > 1:
        names = " ".join(modules)
        raise BadModule("module", names, "it has consumers in several apps", "name one: module:app")
    with ExitStack() as stack:
        for app in apps:
            stack.callback(log_events(app.events, settings))
        for app in apps:
            app.run(burst=burst, drain=drain)
