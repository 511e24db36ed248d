"""The target of a command: a store, namespace and coordinator, and the app that it opens there."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

from qframe.admin.admin import Admin
from qframe.app.qframe import QFrame
from qframe.cli.flags import Config, Coordinator, Namespace, Store, TimersDb
from qframe.cli.reading import looked_at
from qframe.errors import BadOption, QFrameError, UnknownTopic
from qframe.options.config_file import CONFIG_VARIABLE
from qframe.options.settings import PREFIX, Settings
from qframe.redaction import shown_url
from qframe.telemetry.logs import log_events

_COORDINATOR: Final = "coordinator"
_FLAGS: Final = {
    "store": Store, "timers_db": TimersDb, _COORDINATOR: Coordinator, "namespace": Namespace,
    "config": Config,
}  # fmt: skip


class Target(NamedTuple):
    """The flags that say where; what is None is left to `qframe.toml` and the environment."""

    store: str | None = None
    coordinator: str | None = None
    namespace: str | None = None
    config: str | None = None
    timers_db: str | None = None

    def settings(self, **more: str | None) -> Settings:
        """Makes the flags that were given this process's environment, and returns what counts.

        Modules that a worker imports make apps of their own, and these are to use the same store.
        """
        if self.config is not None:
            if not Path(self.config).exists():
                raise BadOption(
                    "--config", self.config, "the file does not exist", "name an existing file"
                )
            os.environ[CONFIG_VARIABLE] = self.config
        given = {name: getattr(self, name) for name in _FLAGS if name != "config"}
        given |= more
        settings = Settings.load(**given)
        for name, value in given.items():
            if value is not None:
                os.environ[PREFIX + name.upper()] = value
        return settings

    @contextmanager
    def opened(self, *, creating: bool = False) -> Iterator[QFrame]:
        """The app that a command works on; the store must be there, unless it may be created."""
        settings = self.settings()
        store, timers_db = settings.store, settings.timers_db
        if not creating:
            store, timers_db = looked_at(store), looked_at(timers_db, "timers_db")
        with QFrame(store=store, timers_db=timers_db) as app:
            try:
                yield app
            except UnknownTopic as error:
                names = error.known
                with suppress(QFrameError):  # its user may not be allowed to list them
                    names = names or [topic.name for topic in app.store.topics()]
                where = f"{shown_url(settings.store)}, namespace {settings.namespace}"
                raise UnknownTopic(str(error.value), names, where) from None

    @contextmanager
    def acting(self, by: str | None) -> Iterator[tuple[QFrame, Admin]]:
        """The app, and its verbs in somebody's name; the audit's line goes to stderr."""
        with self.opened() as app:
            stop = log_events(app.events, app.settings, level="info")
            try:
                yield app, app.admin.acting(by=by)
            finally:
                stop()


def targeted(command: Callable[..., None], *, coordinated: bool = False) -> Callable[..., None]:
    """Gives a command, whose first parameter is a `Target`, the flags of one behind its own.

    Args:
        command: the command.
        coordinated: whether it asks the coordinator, and so takes its flag as well.
    """
    signature = inspect.signature(command, eval_str=True)
    flags = [name for name in _FLAGS if coordinated or name != _COORDINATOR]
    _, *own = signature.parameters.values()
    added = [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=_FLAGS[name]
        )
        for name in flags
    ]

    @wraps(command)
    def run(**given: Any) -> None:
        command(Target(**{name: given.pop(name) for name in flags}), **given)

    parameters = [*own, *added]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def coordinated(command: Callable[..., None]) -> Callable[..., None]:
    """As `targeted`, for a command that asks the coordinator too."""
    return targeted(command, coordinated=True)
