"""`qframe worker`: serves the consumers of the modules that it is given."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Final

from click.exceptions import Exit

from qframe.app.default import default_app
from qframe.app.qframe import QFrame
from qframe.cli.building import Command, command_of
from qframe.cli.chosen import choose
from qframe.cli.health import HealthFilePath, HealthPort, reported, told
from qframe.cli.metrics import METRICS_PORT, MetricsPort, added_up, counted
from qframe.cli.modules import apps_of
from qframe.cli.processes import held, name_worker, program, say_when_ready, supervise
from qframe.cli.reload import reload
from qframe.cli.scale import ScaleRoute
from qframe.cli.serving import serve
from qframe.cli.target import Target, coordinated
from qframe.cli.times import duration_of
from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadOption, CoordinatorUnavailable, StoreForbidden, StoreUnavailable
from qframe.events import Events
from qframe.options.consumer import ConsumerOptions
from qframe.options.rules import options_of
from qframe.options.settings import Settings
from qframe.redaction import shown_url
from qframe.runtime.process.health import Health, combined
from qframe.telemetry.logs import log_events
from qframe.telemetry.root_log import log_records
from qframe.topic import duration_ms
from qframe.verbs.parameters import argument, option
from qframe.words import word_of

_TUNED: Final = {"threads": "--threads", "rate_limit": "--rate", "max_in_flight": "--in-flight"}


class WorkerCommand(Command):
    """A command that knows the options of a consumer, and where they belong."""

    def refuse(self, flag: str, own: Collection[str]) -> None:
        """Refuses a flag that the command does not have, if it knows what is meant.

        Raises:
            BadCommand: if an option is known by another name here.
            BadOption: if it is one of consumers.
        """
        super().refuse(flag, own)
        name = flag.removeprefix("--").replace("-", "_")
        word = word_of(flag)
        if word is not None:
            name = word.options.get("consumer", name)
        if name in options_of(ConsumerOptions):
            raise BadOption("option", flag, "it is an option of each consumer", _where(name))


def _where(name: str) -> str:
    code = f"write @consumer(…, {name}=…) in the module"
    if name not in _TUNED:
        return code
    return f"{code}, or change running workers: qframe groups tune TOPIC GROUP {_TUNED[name]} …"


@coordinated
def worker(
    target: Target,
    modules: Annotated[
        list[str],
        argument("MODULE", "A module such as shop.orders, or an app in it: shop:app."),
    ],
    burst: Annotated[
        bool, option("--burst", help="Exit when no message is due or waits for a retry.")
    ] = False,
    drain: Annotated[
        bool, option("--drain", help="Exit when no message waits at all, timers included.")
    ] = False,
    processes: Annotated[int, option(least=1, metavar="N", help="How many workers to run.")] = 1,
    topics: Annotated[
        list[str] | None,
        option("--topic", metavar="TOPIC", help="Serve only this topic; may be repeated."),
    ] = None,
    groups: Annotated[
        list[str] | None,
        option("--group", metavar="GROUP", help="Serve only this group; may be repeated."),
    ] = None,
    log_level: Annotated[
        str | None, option(metavar="LEVEL", help="One of debug, info, warning, error.")
    ] = None,
    watched: Annotated[
        bool,
        option("--reload", help="Restart when a file changes; for development."),
    ] = False,
    health_port: HealthPort = None,
    health_file: HealthFilePath = None,
    metrics_port: MetricsPort = None,
    wait: Annotated[
        str,
        option(metavar="DURATION", help="How long to wait for the store and the coordinator."),
    ] = "0",
    number: Annotated[int, option(least=0, hidden=True)] = 0,  # these four a supervisor adds
    supervisor_pipe: Annotated[int | None, option(least=3, hidden=True)] = None,
    metrics_folder: Annotated[str | None, option(hidden=True)] = None,
    flags: Annotated[list[str] | None, option("--flag", hidden=True)] = None,
) -> None:
    """Serves the consumers of modules, until SIGTERM or Ctrl-C.

    It then finishes the messages in hand; a second signal ends it at once. With --processes, a
    worker that dies is restarted, and signals to the first process stop them all.
    """
    wait_ms = duration_ms(duration_of(wait) or 0, "wait")
    settings = target.settings(log_level=log_level)
    named = {
        "store": target.store,
        "timers_db": target.timers_db,
        "namespace": target.namespace,
        "coordinator": target.coordinator,
    }
    given = [*(flags or ()), *(name for name, value in named.items() if value is not None)]
    words = [f"--wait={wait}", *(["--burst"] if burst else []), *(["--drain"] if drain else [])]
    words += [f"--topic={name}" for name in topics or ()]
    words += [f"--group={name}" for name in groups or ()]
    words += [f"--flag={name}" for name in given]
    tells = partial(told, settings=settings, port=health_port, file=health_file)
    if watched:
        words += [] if health_port is None else [f"--health-port={health_port}"]
        words += [] if health_file is None else [f"--health-file={health_file}"]
        words += [] if metrics_port is None else [f"{METRICS_PORT}={metrics_port}"]
        raise Exit(_reload([*modules, f"--processes={processes}", *words], modules, settings))
    if processes > 1 and supervisor_pipe is None:
        with added_up(metrics_port) as more:
            code = supervise(
                modules,
                settings,
                processes=processes,
                ends=burst or drain,
                words=words + more,
                told=partial(tells, routes=ScaleRoute(lambda: [default_app()]).routes()),
            )
        raise Exit(code)
    name_worker(modules, number, processes)
    with ExitStack() as stack:
        line = (
            None
            if supervisor_pipe is None
            else stack.enter_context(held(supervisor_pipe, settings))
        )
        apps = choose(apps_of(modules), topics or (), groups or ())

        waits = True

        def look() -> Health:
            if waits:
                return Health.of("starting", lacking=["store and coordinator are waited for"])
            return combined([app.health() for app in apps])

        log_records(settings, sys.stderr)
        routes = ScaleRoute(lambda: apps).routes()
        stack.enter_context(
            tells(look, routes=routes) if line is None else reported(look, line.report)
        )
        stack.enter_context(counted(apps, port=metrics_port, folder=metrics_folder, number=number))
        for app in apps:
            _refuse_overruled(given, settings, app.settings)
            stack.callback(app.close)
            stack.callback(log_events(app.events, settings))
            _wait_for_both(app, wait_ms)
        waits = False
        if line is not None:
            say_when_ready(apps, line)
        serve(apps, burst=burst, drain=drain, supervised=line is not None)


command: Final = command_of(worker, "worker", WorkerCommand)


def _reload(words: Sequence[str], modules: Sequence[str], settings: Settings) -> int:
    events = Events()
    end_log = log_events(events, settings)
    try:
        return reload([*program(), "worker", *words], modules, events)
    finally:
        end_log()


def _refuse_overruled(given: Iterable[str], flags: Settings, app: Settings) -> None:
    """Sees that no flag is in vain.

    Raises:
        BadOption: if an app says otherwise itself, which counts more than a flag.
    """
    for name in given:
        asked, own = getattr(flags, name), getattr(app, name)
        if asked != own:
            raise BadOption(
                f"--{name.replace('_', '-')}", shown_url(asked),
                f"the module's own QFrame({name}={shown_url(own)!r}) overrides it",
                f"remove {name} there, or --{name.replace('_', '-')} here",
            )  # fmt: skip


def _wait_for_both(app: QFrame, wait_ms: int) -> None:
    """Returns when store and coordinator answer; the last error is raised when time is over."""
    until_s = SYSTEM_CLOCK.monotonic_s() + wait_ms / 1000
    pause = threading.Event()
    while True:
        try:
            app.store.now_ms()
            app.coordinator.check()
        except (StoreUnavailable, CoordinatorUnavailable) as error:
            if isinstance(error, StoreForbidden) or SYSTEM_CLOCK.monotonic_s() >= until_s:
                raise
            pause.wait(0.25)
        else:
            return
