"""Which store an outbox belongs to, and which namespace in it: see `qframe.outbox`, "The store"."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from sqlalchemy import Connection, Engine

from qframe.clock import SYSTEM_CLOCK, Clock, moment
from qframe.errors import BadOption, BadTopic, WrongStore
from qframe.events import Events
from qframe.outbox.outbox import Outbox
from qframe.redaction import shown_url
from qframe.stores.base import Topics
from qframe.stores.store_mark import drawn_at_ms, drawn_mark, mark_topic

_IN_MEMORY: Final = "model:"
_REMEDY: Final = (
    "its messages wait: name the store that is meant (QFRAME_STORE, QFRAME_NAMESPACE), "
    "or move the outbox here: qframe outbox bind"
)


class BindingStore(Topics, Protocol):
    """The roles of a store that an outbox is bound to, and what it is called."""

    url: str
    namespace: str


class Home(NamedTuple):
    """What an outbox is bound to, as one store sees it.

    Attributes:
        mark: the mark that the outbox keeps; None if it belongs to no store yet.
        is_here: whether this store has the mark.
    """

    mark: int | None
    is_here: bool

    @property
    def bound_at_ms(self) -> int | None:
        """When it was bound, to the second, by the clock of the process that did it."""
        return None if self.mark is None else drawn_at_ms(self.mark)


class OutboxBinding:
    """Binds an outbox to a store, and says whether it belongs to that one.

    Args:
        outbox: the outbox.
        store: the store, in the namespace that counts.
        events: told when the store has forgotten a mark that it had.
        clock: dates marks.

    Attributes:
        is_elsewhere: whether the outbox was found to belong to another store.
    """

    def __init__(
        self, outbox: Outbox, store: BindingStore, *, events: Events | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:  # fmt: skip
        self._outbox = outbox
        self._rows = outbox.rows
        self._store = store
        self._events = events
        self._clock = clock
        self._keeps_marks = not store.url.startswith(_IN_MEMORY)
        self._confirmed: int | None = None
        self._is_sure = False
        self.is_elsewhere = False

    def confirm(self, engine: Engine, *, anew: bool) -> None:
        """Checks that the outbox belongs to this store, and binds it if it belongs to none yet.

        A store that had the mark in this process and has lost it was flushed: it gets it again, as
        its topics are declared again by workers that run.

        Args:
            engine: to ask the outbox's database with.
            anew: whether to look again though it was found to belong here.

        Raises:
            WrongStore: if it belongs to another.
        """
        if self._is_sure and not anew:
            return
        self._is_sure = False
        mark = self._mark(engine)
        if mark is None:
            mark = self._bind_first(engine)
        if mark is not None and not self._has(mark):
            if mark != self._confirmed:
                self.is_elsewhere = True
                raise self._refusal(mark)
            self._store.declare(mark_topic(mark))
            if self._events:
                self._events.emit("store.forgot", outbox=self._outbox.prefix)
        self._confirmed, self._is_sure, self.is_elsewhere = mark, True, False

    def still_holds(self, connection: Connection) -> bool:
        """Whether the outbox is still bound as it was confirmed; if not, `confirm` looks again."""
        self._is_sure = self._rows.bound(connection) == self._confirmed
        return self._is_sure

    def home(self) -> Home:
        """What the outbox is bound to now."""
        mark = self._mark(self._outbox.engine)
        return Home(mark, is_here=mark is not None and self._has(mark))

    def move(self) -> None:
        """Binds the outbox to this store, whichever it belonged to.

        Raises:
            BadOption: if the store is in a process's memory, and cannot keep a mark.
        """
        if not self._keeps_marks:
            raise BadOption(
                "store", self._store.url, "it ends with its process, so nothing can belong to it",
                "name a store that lasts",
            )  # fmt: skip
        self._outbox.create_if_asked()
        mark = drawn_mark(self._clock)
        self._store.declare(mark_topic(mark))
        with self._outbox.engine.begin() as connection:
            self._rows.bind(connection, mark)

    def _bind_first(self, engine: Engine) -> int | None:
        """Binds an outbox that belongs to no store; returns the mark that counts.

        The store has the mark before the outbox does: an outbox is never bound to a mark that no
        store has. Of several that do so at once the first to insert its mark wins.
        """
        if not self._keeps_marks:
            return None
        drawn = drawn_mark(self._clock)
        self._store.declare(mark_topic(drawn))
        with engine.begin() as connection:
            self._rows.bind_first(connection, drawn)
        mark = self._mark(engine)
        if mark != drawn:
            while not self._store.delete(mark_topic(drawn)):
                pass
        return mark

    def _mark(self, engine: Engine) -> int | None:
        with engine.connect() as connection:
            return self._rows.bound(connection)

    def _has(self, mark: int) -> bool:
        try:
            return self._store.topic(mark_topic(mark).name) is not None
        except BadTopic:  # a newer version has declared it anew
            return True

    def _refusal(self, mark: int) -> WrongStore:
        url = self._outbox.engine.url.render_as_string(hide_password=True)
        return WrongStore(
            f"{shown_url(self._store.url)}, namespace {self._store.namespace}",
            f"outbox {self._outbox.prefix} in {shown_url(url)} belongs since "
            f"{moment(drawn_at_ms(mark))} to the store with topic {mark_topic(mark).name}, "
            "which is not here: it is another store or namespace, or this one was flushed since, "
            "or restored from before",
            _REMEDY,
        )  # fmt: skip
