"""Settles a batch's items once `process` has returned or raised."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from qframe.errors import AlreadySettled
from qframe.message import Message, ack_together

T = TypeVar("T")
LOGGER = "qframe.batching"


class ItemSettler(Generic[T]):
    """Settles items that are messages, and reports failed ones; never raises.

    Args:
        name: the batcher's name, for the log.
        on_error: called with the items of a failed batch and the error; None logs them.
    """

    def __init__(
        self, name: str, on_error: Callable[[list[T], BaseException], object] | None
    ) -> None:
        self._name = name
        self._on_error = on_error

    def processed(self, items: list[T]) -> None:
        """Acks the items that are unsettled messages."""
        self._ack(items, None)

    def failed(self, items: list[T], error: BaseException) -> None:
        """Reports the items, then acks their messages with the error."""
        if self._on_error is None:
            self._log("a batch of %d items failed", len(items), error)
        else:
            try:
                self._on_error(list(items), error)
            except BaseException as second:  # a callback ends no thread
                second.__context__ = second.__context__ or error
                self._log("on_error raised for a batch of %d items", len(items), second)
        self._ack(items, error)

    def _ack(self, items: Iterable[Any], error: BaseException | None) -> None:
        messages = [item for item in items if isinstance(item, Message) and not item.auto_ack]
        for message in messages if error is not None else ack_together(messages):
            try:
                message.ack(error=error)
            except AlreadySettled:  # by whoever processed it, or another thread
                continue
            except Exception as refused:  # the next ones are to be settled
                self._log("%d message could not be settled", 1, refused)

    def _log(self, what: str, count: int, error: BaseException) -> None:
        logging.getLogger(LOGGER).error(f"batcher %s: {what}", self._name, count, exc_info=error)
