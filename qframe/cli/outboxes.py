"""The outboxes that a command is about: those of a module's apps, or one in a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from sqlalchemy import create_engine
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from qframe.admin.admin import Admin
from qframe.app.qframe import QFrame
from qframe.cli.modules import apps_of
from qframe.cli.output import say_error
from qframe.cli.reading import looked_at, refuse_absent
from qframe.cli.target import Target
from qframe.clock import moment
from qframe.drivers.schemes import EXAMPLES
from qframe.errors import BadModule, BadOption, BadUrl, QFrameError
from qframe.options.settings import Settings
from qframe.outbox.inspector import OutboxInspector, Waiting, has_tables
from qframe.outbox.outbox import Outbox
from qframe.redaction import shown_url
from qframe.tables import DEFAULT_PREFIX
from qframe.telemetry.logs import log_events


class OutboxPlace(NamedTuple):
    """An outbox that was named.

    Attributes:
        outbox: the outbox.
        inspector: looks at it.
        store: the store and namespace that are asked about it, for people.
        admin: its verbs; None if its store is away.
    """

    outbox: Outbox
    inspector: OutboxInspector
    store: str
    admin: Admin | None

    @property
    def moved_away(self) -> str | None:
        """What to say of an outbox that belongs to another store; None if it does not."""
        home = self.inspector.home()
        if home is None or home.mark is None or home.is_here:
            return None
        return (
            f"the outbox {self.outbox.prefix} belongs to another store or namespace since "
            f"{moment(home.bound_at_ms)}, or {self.store} was flushed or restored since"
        )


class OutboxPlaces(NamedTuple):
    """All outboxes that were named, looked at together."""

    places: Sequence[OutboxPlace]

    def waiting(self, limit: int, *, refused: bool) -> list[tuple[OutboxPlace, Waiting]]:
        """The waiting messages, outbox by outbox, the oldest first."""
        found: list[tuple[OutboxPlace, Waiting]] = []
        for place in self.places:
            if left := limit - len(found):
                waiting = place.inspector.waiting(left, refused=refused)
                found += [(place, each) for each in waiting]
        return found

    def named(self, ids: Sequence[str]) -> list[tuple[OutboxPlace, Waiting]]:
        """The waiting messages of these ids.

        Raises:
            BadOption: if one waits in none of the outboxes.
        """
        found = [(place, each) for place in self.places for each in place.inspector.named(ids)]
        there = {each.row.id for _, each in found}
        for message_id in ids:
            if message_id not in there:
                raise BadOption(
                    "message", message_id, "it is not waiting in the outbox",
                    "a relay has published it, or it was never stored: see qframe explain",
                )  # fmt: skip
        return found


@contextmanager
def outboxes_at(
    target: Target, where: str, prefix: str | None, *, must_ask: bool = False, by: str | None = None
) -> Iterator[OutboxPlaces]:
    """The outboxes of a module or the URL of a database.

    Their store is asked for reasons, and keeps the audit of what is changed. If it is away, that is
    said, and what waits is known all the same.

    Args:
        target: whose store is asked about an outbox in a database.
        where: the module or the URL.
        prefix: what the names of the tables begin with, in a database; None for the default.
        must_ask: whether nothing can be done without the store.
        by: who acts, for the audit.

    Raises:
        QFrameError: if there is no outbox, or its database cannot be used.
    """
    settings = target.settings()
    with ExitStack() as stack:
        if "://" in where:
            found = [(_in_database(where, prefix, stack), settings)]
        else:
            apps = apps_of([where])
            found = [(outbox, app.settings) for app in apps for outbox in app.outboxes]
        if not found:
            raise BadModule(
                "module", where, "its apps have no relay",
                "write app.relay(Outbox(engine)), or name the URL of the outbox's database",
            )  # fmt: skip
        for outbox, _ in found:
            _refuse_without_tables(outbox)
        yield OutboxPlaces(
            [_place(outbox, _app_of(each, stack, must_ask), by) for outbox, each in found]
        )


def _in_database(url: str, prefix: str | None, stack: ExitStack) -> Outbox:
    try:
        refuse_absent(url, "outbox", "name the database in which Outbox(engine) publishes")
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        scheme = url.partition("://")[0]
        raise BadUrl(
            "outbox", f"{scheme}://…", f"it cannot be opened ({error})",
            f"use {EXAMPLES}",
        ) from error  # fmt: skip
    stack.callback(engine.dispose)
    prefix = DEFAULT_PREFIX if prefix is None else prefix
    return Outbox(engine, prefix=prefix, create_tables=False)


def _refuse_without_tables(outbox: Outbox) -> None:
    if not has_tables(outbox):
        raise BadOption(
            "outbox", outbox.engine.url.render_as_string(hide_password=True),
            f"it has no tables {outbox.prefix}outbox and {outbox.prefix}lines",
            "name the database in which Outbox(engine) publishes, and its --prefix",
        )  # fmt: skip


def _place(outbox: Outbox, app: QFrame | None, by: str | None) -> OutboxPlace:
    if app is None:
        return OutboxPlace(outbox, OutboxInspector(outbox, None), "", None)
    store = f"{shown_url(app.settings.store)}, namespace {app.settings.namespace}"
    return OutboxPlace(outbox, OutboxInspector(outbox, app.store), store, app.admin.acting(by=by))


def _app_of(settings: Settings, stack: ExitStack, must_ask: bool) -> QFrame | None:
    """The app of a store that is only looked at; None, once that was said, if it is away."""
    try:
        app = stack.enter_context(
            QFrame(store=looked_at(settings.store), namespace=settings.namespace)
        )
        app.store.now_ms()
        if must_ask:
            stack.callback(log_events(app.events, settings, level="info"))
    except QFrameError as error:
        if must_ask:
            raise
        say_error(f"cannot show which messages are refused: {error}")
        return None
    return app
