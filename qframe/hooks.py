"""The types of the user's functions, and what they return: handlers and middleware."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from qframe.errors import BadHandler, BadOption
from qframe.message import Message

_REMEDY = "pass an instance of a qframe.Middleware subclass, or a list of them"


class Middleware:
    """Is told of each call of a handler: inherit from it, and override what is wanted.

    Several are called in their order before a handler, and in the reverse order after it, those of
    the app around those of the consumer. A middleware whose `before` has returned is told of the
    end, by `after` or by `on_failure`; all three are called in the handler's thread (or task), so
    that a context variable that `before` sets is the handler's too. Hooks of async handlers may be
    async.
    """

    def before(self, message: Message) -> Awaitable[None] | None:
        """The handler is about to be called. An exception here counts as the handler's error."""

    def after(self, message: Message, elapsed: float) -> Awaitable[None] | None:
        """The handler has returned, `elapsed` seconds after it was called.

        An exception here is logged and changes nothing.
        """

    def on_failure(self, message: Message, error: BaseException) -> Awaitable[None] | None:
        """The handler, or the `before` of another one, has raised.

        A `NeedRetry` and a `Reject` are errors too, and the CancelledError of an async handler.
        An exception here is logged and changes nothing.
        """


def is_async(function: object) -> bool:
    """Whether a function's result must be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object that can be called
    )


def takes(function: Callable[..., object], *arguments: object) -> bool:
    """Whether a function can be called with these arguments, as far as its signature tells."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # of some that are written in C
        return True
    return True


def check_result(result: object) -> None:
    """Raises an exception that a user's function has returned; refuses what has still to run.

    Raises:
        BadHandler: if it would have to be awaited or iterated, since its work is not done.
    """
    if isinstance(result, BaseException) or (
        inspect.isclass(result) and issubclass(result, BaseException)
    ):
        raise result
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise BadHandler(
            "result", result, "it is awaitable, and nobody awaits it",
            "await it in an async function; if a decorator returns it, decorate the async function "
            "itself, or write `async def` around it",
        )  # fmt: skip
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise BadHandler(
            "result", result, "it is a generator, and nothing of it has run",
            "remove the yield from the function, or iterate over it there",
        )  # fmt: skip


def middleware_given(value: Any) -> tuple[Middleware, ...]:
    """One or more that were given, checked; of a class that was given, an object.

    Raises:
        BadOption: if one is none.
    """
    given = value if isinstance(value, list | tuple) else [value]
    return tuple(_made(each) for each in given)


def _made(value: Any) -> Middleware:
    if isinstance(value, Middleware):
        return value
    if not isinstance(value, type) or not issubclass(value, Middleware):
        raise BadOption("middleware", value, "it is not a Middleware", _REMEDY)
    try:
        return value()
    except TypeError as error:
        raise BadOption("middleware", value, f"it cannot be created ({error})", _REMEDY) from error
