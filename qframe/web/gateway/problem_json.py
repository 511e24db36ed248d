"""Errors as problems (RFC 9457): the status, a type of their own, and the error's own sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from qframe.errors import (
    BadBody,
    PublishUnknown,
    QFrameError,
    StoreFull,
    TopicFull,
)
from qframe.outcomes import Published
from qframe.web.gateway.callers import NotKnown, NotPermitted, TooMuch
from qframe.web.gateway.deliveries import SettleOutcome, SettleReply
from qframe.web.gateway.gateway import GatewayFull, GatewayStopped
from qframe.web.gateway.making import TooManyMade
from qframe.web.gateway.wire import ProblemOut, PublishedOut, RefusedOut, UnknownOut
from qframe.web.refusals import refusal

PROBLEM_TYPE: Final = "urn:qframe:problem:"
PROBLEM_JSON: Final = "application/problem+json"
AGAIN_S: Final = 1.0

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_STATUSES: Final[Mapping[type[Exception], int]] = {
    NotKnown: 401,
    NotPermitted: 403,
    TooMuch: 429,
    GatewayStopped: 503,
    GatewayFull: 503,
    TopicFull: 507,
    StoreFull: 507,
    TooManyMade: 507,
    PublishUnknown: 503,
}
_TITLES: Final[Mapping[int, str]] = {
    400: "The request is wrong",
    401: "The caller is not known",
    403: "The caller has no right to this",
    404: "There is none of this name",
    405: "The method is wrong here",
    408: "The request took too long",
    409: "The receipt is stale",
    413: "The request is too large",
    415: "The content type is not one of ours",
    421: "The receipt belongs to another gateway",
    429: "The caller is at its limit",
    500: "The gateway has failed",
    503: "The gateway cannot do this now",
    507: "There is no room",
}


class BadRequest(QFrameError):
    """Raised when a request is refused before anything of it was done.

    Attributes:
        status: of the reply.
        slug: the end of the problem's type.
    """

    def __init__(self, status: int, slug: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.slug = status, slug


def slug_of(error: Exception) -> str:
    """The end of a problem's type: `unknown-topic` for an `UnknownTopic`."""
    if isinstance(error, BadRequest):
        return error.slug
    if isinstance(error, QFrameError):
        return _WORD.sub("-", type(error).__name__).lower()
    return "gateway-failed"


def problem_of(error: Exception) -> Response:
    """The reply to a request that has ended with an error."""
    if isinstance(error, BadRequest):
        status = error.status
    else:
        found = (status for kind, status in _STATUSES.items() if isinstance(error, kind))
        status = next(found, 0) or refusal(error).status
        if isinstance(error, BadBody) and error.why.startswith("max_body"):
            status = 413
    detail = str(error) if isinstance(error, QFrameError) else "the gateway's log has more of it"
    problem = ProblemOut(PROBLEM_TYPE + slug_of(error), _TITLES[status], status, detail)
    if isinstance(error, PublishUnknown):
        problem.ids = error.ids
    headers = {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    elif isinstance(error, TooMuch):
        headers["retry-after"] = str(math.ceil(error.again_s))
    elif status == 503:
        headers["retry-after"] = str(math.ceil(AGAIN_S))
    return reply_of(problem, headers)


def line_out(one: Published | QFrameError) -> PublishedOut | RefusedOut | UnknownOut:
    """The outcome of a line of a stream."""
    if isinstance(one, Published):
        return PublishedOut(one.id, one.outcome)
    kind, detail = PROBLEM_TYPE + slug_of(one), str(one)
    if isinstance(one, PublishUnknown):
        return UnknownOut(one.id, "unknown", kind, detail)
    return RefusedOut("refused", kind, detail)


def unsettled(results: list[SettleReply]) -> Response | None:
    """The problem of a settlement of which nothing was done, for one reason; else None."""
    outcomes = {one.outcome for one in results}
    if outcomes == {SettleOutcome.STALE}:
        status, slug = 409, "stale-receipt"
        detail = (
            "the deliveries are not this client's any more: their leases ended, or they were "
            "settled; what it has done with them may be done again by another one"
        )
    elif outcomes == {SettleOutcome.ELSEWHERE}:
        status, slug = 421, "other-gateway"
        detail = "settle it at the gateway that handed it out; results has its address"
    else:
        return None
    problem = ProblemOut(PROBLEM_TYPE + slug, _TITLES[status], status, detail, results=results)
    return reply_of(problem, {})


async def _missing(request: Request, _: Exception) -> Response:
    why = f"there is no {request.url.path[:200]!r} here; see /v1/openapi.json"
    return problem_of(BadRequest(404, "no-such-path", why))


async def _wrong_method(request: Request, error: Exception) -> Response:
    why = f"{request.method[:20]} is not for {request.url.path[:200]!r}; see /v1/openapi.json"
    reply = problem_of(BadRequest(405, "wrong-method", why))
    reply.headers.update(getattr(error, "headers", None) or {})
    return reply


NOT_SERVED: Final[Mapping[Any, Any]] = {404: _missing, 405: _wrong_method}
"""Where there is no such path, or it has other methods: Starlette's handlers."""


def reply_of(problem: ProblemOut, headers: dict[str, str]) -> Response:
    """A problem as a reply."""
    body = msgspec.json.encode(problem)
    return Response(body, problem.status, headers, PROBLEM_JSON)
