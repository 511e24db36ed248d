"""The rules of retrying, as one pure function of a delivery and its error."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from qframe.codec import legible
from qframe.errors import BadEffectKey, UndecodableBody
from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.retry import Backoff, NeedRetry, NeedTime, Reject
from qframe.tracebacks import shortened

FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 5.0
MAX_ERROR_CHARS: Final = 500
MAX_TRACEBACK_CHARS: Final = 8000
MAX_RETRIED_CHARS: Final = 2000  # millions of messages may wait for a retry at once
FRAMES_OF_ODD_ERRORS: Final = 5


class Disposition(msgspec.Struct, gc=False, eq=False):
    """How a delivery ends, on its way to the settler.

    Attributes:
        is_rejected: whether its handler wants no retry, however many there might be.
    """

    delivery: Delivery
    verdict: Verdict
    delay_ms: int = 0
    at_ms: int | None = None
    error: str | None = None
    traceback: str | None = None
    is_rejected: bool = False


def signal_in(error: BaseException) -> BaseException:
    """The `NeedRetry` or `Reject` of a group that has nothing else in it; else the error itself.

    `asyncio.TaskGroup` raises what one of its tasks has raised in such a group.
    """
    inner = error
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner if isinstance(inner, NeedRetry | Reject) else error


def retries_locally(error: BaseException, local_retries: int, most: int) -> bool:
    """Whether the message stays in the worker and is handed to its handler again."""
    if isinstance(error, NeedTime):
        return True
    return isinstance(error, NeedRetry) and error.is_local and local_retries < most


def pause_s(error: BaseException, local_retries: int) -> float:
    """The pause before local retry number `local_retries` (from 1): 50 ms, doubling up to 5 s.

    A random part of up to half is taken off. An error that says how long has that pause.
    """
    if isinstance(error, NeedTime):
        return error.wait_s
    bound = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(local_retries - 1, 10))
    return bound * random.uniform(0.5, 1)  # noqa: S311 - jitter, no secret


def disposition_of(
    delivery: Delivery, error: BaseException, *, max_attempts: int, backoff: Backoff
) -> Disposition:
    """The retry or the death of a delivery whose handler raised `error`."""
    attempt = delivery.attempt
    gives_up = isinstance(error, Reject | UndecodableBody | BadEffectKey)
    if gives_up or attempt >= max_attempts:
        return Disposition(
            delivery,
            Verdict.DEAD,
            error=summary(error),
            traceback=_traced(error, _whole),
            is_rejected=isinstance(error, Reject),
        )
    if isinstance(error, NeedRetry) and not error.is_local:
        delay_ms = error.delay_ms or 0
        return Disposition(delivery, Verdict.RETRY, delay_ms, error.at_ms, summary(error))
    trace = None if isinstance(error, NeedRetry) else _traced(error, _short)
    return Disposition(
        delivery, Verdict.RETRY, backoff.delay_ms(attempt), None, summary(error), trace
    )


def releases(
    deliveries: Collection[Delivery], after: Delivery | None = None
) -> tuple[list[Disposition], list[Delivery]]:
    """How deliveries are given back uncounted, and those that go with others before them.

    Giving back one of a subject's run gives back what was handed out behind it, which need not have
    the higher number: a retried dead letter stands behind a head that was handed out. A stream's
    line hands out all under one receipt, and that is no run. Nor are messages of two slots of a
    stream, whose subjects are their offsets and may be alike.

    Args:
        deliveries: all that are given back, those of a run in the order in which they were handed
            out.
        after: one before them that is given back as well, in its own way.
    """
    dispositions, implied = [], []
    seen = set() if after is None else {_run_of(after)}
    for one in deliveries:
        if one.subject is not None and _run_of(one) in seen:
            implied.append(one)
        else:
            seen.add(_run_of(one))
            dispositions.append(Disposition(one, Verdict.RELEASE))
    return dispositions, implied


def summary(error: BaseException) -> str:
    """The error in one line, cut where it is long, as every store takes it."""
    try:
        words = str(error)
    except BaseException as problem:  # it is the user's class, and must end no thread
        words = f"its __str__ raised {type(problem).__name__}"
    text = legible(f"{type(error).__name__}: {words}".replace("\n", " ").rstrip(": "))
    return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"


def _run_of(delivery: Delivery) -> tuple[int, str | None, str]:
    return delivery.slot, delivery.subject, delivery.receipt


def _short(error: BaseException) -> str:
    return shortened(error, MAX_RETRIED_CHARS)


def _whole(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= MAX_TRACEBACK_CHARS else "…" + text[-MAX_TRACEBACK_CHARS:]


def _traced(error: BaseException, write: Callable[[BaseException], str]) -> str:
    """A traceback as every store takes it, by a way of writing it."""
    try:
        return legible(write(error))
    except BaseException as problem:  # as in `summary`: its notes, or what a SyntaxError is given
        steps = "".join(traceback.format_tb(error.__traceback__, -FRAMES_OF_ODD_ERRORS))
        why = f"its traceback cannot be written whole: {type(problem).__name__}"
        return legible(f"{steps}{summary(error)}\n{why}")
