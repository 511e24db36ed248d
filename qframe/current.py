"""The message that the current thread or task handles.

A thread says once which hand is its own, and a task which flight; what is in them is looked up when
somebody asks. So a message costs nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final, Protocol

from qframe.message import Message


class Holder(Protocol):
    """Something that hands messages to a handler."""

    @property
    def being_handled(self) -> Sequence[Message]:
        """The messages that the handler was called with."""


HOLDER: Final[ContextVar[Holder | None]] = ContextVar("qframe.holder", default=None)


def being_handled() -> Sequence[Message]:
    """The messages of the call that the caller runs in; none outside of handlers."""
    holder = HOLDER.get()
    return () if holder is None else holder.being_handled
