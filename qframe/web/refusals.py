"""Errors as pages: the status, a sentence of what is wrong, and one of what to do."""

from __future__ import annotations

from typing import NamedTuple

from qframe.errors import (
    BadInput,
    CoordinatorUnavailable,
    NotAllowed,
    QFrameError,
    SchemaMismatch,
    StoreForbidden,
    StoreUnavailable,
    UnknownGroup,
    UnknownTopic,
)


class Refusal(NamedTuple):
    """An error for people.

    Attributes:
        status: of the reply.
        title: what is wrong, in short.
        text: what is wrong.
        remedy: what to do.
    """

    status: int
    title: str
    text: str
    remedy: str = ""


def refusal(error: Exception) -> Refusal:
    """The page of an error."""
    if isinstance(error, NotAllowed):
        return Refusal(403, "Not allowed", str(error), "Ask somebody whose role has this right.")
    if isinstance(error, UnknownTopic | UnknownGroup):
        return Refusal(404, "There is none of this name", str(error))
    if isinstance(error, StoreForbidden):
        return Refusal(503, "The store refuses its user", str(error))
    if isinstance(error, StoreUnavailable | CoordinatorUnavailable | SchemaMismatch):
        return Refusal(503, "The store is away", str(error), "This page looks again by itself.")
    if isinstance(error, BadInput):
        return Refusal(400, "That cannot be done", str(error))
    if isinstance(error, QFrameError):
        return Refusal(500, "That has failed", str(error))
    return Refusal(
        500, "The console itself has failed", f"It is a {type(error).__name__}.",
        "The log of the console's process has more of it, and the commands of qframe still work.",
    )  # fmt: skip
