"""The handlers of the matrix, one for each shape, and a record of what they did."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pytest
from matrix.acts import Act
from matrix.cells import TRANSACTION, Cell
from sqlalchemy import Column, Connection, Integer, MetaData, Table, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from qframe import AlreadySettled, Message, NeedRetry, Reject

META = MetaData()
# No unique constraint: what is done twice is seen twice.
EFFECTS = Table("effects", META, Column("row", Integer, primary_key=True),
                Column("number", Integer, nullable=False))  # fmt: skip


class Call(NamedTuple):
    """One call of a handler, for one of its messages."""

    number: int
    key: str | None
    attempt: int
    local_retries: int


def acked_in_a_thread(ack: Callable[[], None]) -> None:
    """Acknowledges in another thread while the handler waits for that."""
    thread = threading.Thread(target=ack)
    thread.start()
    thread.join()


class Work:
    """Does with each message what its body says, and notes it. It keeps no message.

    Args:
        cell: the cell.
        at: called at the steps `call`, while a handler runs.

    Attributes:
        calls: the calls, a message at a time.
        ended: the numbers of messages whose handling came to a good end, in order.
        overlaps: the keys of which two messages were handled at once.
        is_mild: whether from now on every message is fine.
    """

    def __init__(self, cell: Cell, at: Callable[[str], None] = lambda step: None) -> None:
        self._cell = cell
        self._at = at
        self._guard = threading.Lock()
        self._running: Counter[str | None] = Counter()
        self.calls: list[Call] = []
        self.ended: list[int] = []
        self.overlaps: list[str | None] = []
        self.is_mild = False

    def handler(self) -> Any:
        """The handler of the cell's shape."""

        def one(message: Message) -> None:
            self._handle([message])

        def many(messages: list[Message]) -> None:
            self._handle(messages)

        def one_written(message: Message, connection: Connection) -> None:
            self._handle([message], connection)

        def many_written(messages: list[Message], connection: Connection) -> None:
            self._handle(messages, connection)

        async def one_awaited(message: Message) -> None:
            self._handle([message])

        async def many_awaited(messages: list[Message]) -> None:
            self._handle(messages)

        async def one_awaited_written(message: Message, connection: AsyncConnection) -> None:
            await self._handle_awaited([message], connection)

        async def many_awaited_written(
            messages: list[Message], connection: AsyncConnection
        ) -> None:
            await self._handle_awaited(messages, connection)

        is_written = self._cell.policy == TRANSACTION
        plain: Any = ((one, many), (one_written, many_written))
        awaited: Any = ((one_awaited, many_awaited), (one_awaited_written, many_awaited_written))
        return (awaited if self._cell.is_async else plain)[is_written][self._cell.is_batch]

    def calls_of(self, number: int) -> list[Call]:
        """The calls for one message."""
        return [call for call in self.calls if call.number == number]

    def by_key(self, numbers: list[int], keys: dict[int, str]) -> dict[str, list[int]]:
        """Numbers, in their order, by the keys of their messages."""
        found: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            found[keys[number]].append(number)
        return found

    # One call.

    @contextmanager
    def call(self, messages: list[Message]) -> Iterator[set[int]]:
        """Notes a call; what is left of its numbers at a good end has ended well."""
        calls = [Call(each.body["n"], each.key, each.attempt, each.local_retries)
                 for each in messages]  # fmt: skip
        keys = {call.key for call in calls}
        with self._guard:
            self.calls += calls
            self.overlaps += [key for key in keys if self._running[key]]
            self._running.update(keys)
        open_ends = {call.number for call in calls}
        try:
            self._at("call")
            yield open_ends
        finally:
            with self._guard:
                self._running.subtract(keys)
        self._note(call.number for call in calls if call.number in open_ends)

    def act(self, message: Message, open_ends: set[int]) -> None:
        """Treats a message as its body says."""
        first, number = message.attempt == 1, message.body["n"]
        match Act.FINE if self.is_mild else Act(message.body["act"]):
            case Act.FAILS_ONCE if first:
                raise ValueError("once")
            case Act.FAILS:
                raise ValueError("always")
            case Act.REJECTED:
                raise Reject("no")
            case Act.EXITS if first:
                raise SystemExit(3)
            case Act.IN_PLACE if first and message.local_retries < 2:
                raise NeedRetry
            case Act.ALWAYS_IN_PLACE:
                raise NeedRetry
            case Act.LATER if first:
                raise NeedRetry(delay="5ms")
            case Act.ACKED:
                open_ends.discard(number)
                self._acknowledge(message)
            case Act.GIVEN if first:
                open_ends.discard(number)
                with suppress(AlreadySettled):
                    message.ack(error=ValueError("given"))
            case Act.HANDED_OVER:
                open_ends.discard(number)
                message.auto_ack = False
                acked_in_a_thread(lambda: self._acknowledge(message))
            case Act.FORGOTTEN if first:
                open_ends.discard(number)
                message.auto_ack = False
            case _ if self._cell.is_once:
                with pytest.raises(AlreadySettled):
                    message.ack()

    def _acknowledge(self, message: Message) -> None:
        """Settles a message whose work is done; it may be another worker's by now."""
        self._note([message.body["n"]])
        with suppress(AlreadySettled):
            message.ack()

    def _note(self, numbers: Any) -> None:
        with self._guard:
            self.ended += numbers

    def _handle(self, messages: list[Message], connection: Connection | None = None) -> None:
        with self.call(messages) as open_ends:
            for message in messages:
                if connection is not None:
                    connection.execute(_written(message))
                self.act(message, open_ends)

    async def _handle_awaited(self, messages: list[Message], connection: AsyncConnection) -> None:
        with self.call(messages) as open_ends:
            for message in messages:
                await connection.execute(_written(message))
                self.act(message, open_ends)


def _written(message: Message) -> Any:
    return insert(EFFECTS).values(number=message.body["n"])
