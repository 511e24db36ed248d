"""A handler, and the middleware around it."""

from __future__ import annotations

import inspect
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from qframe.clock import Clock
from qframe.events import Events
from qframe.hooks import Middleware, check_result
from qframe.message import Message
from qframe.runtime.handler.binding import Handler

# No others: an interrupt of a hook is for whoever runs the worker.
_FAILURES: Final = (Exception, SystemExit, CancelledError)


class WorkerEnd(BaseException):
    """Raised where a worker is lost: it calls nothing any more."""


def hooked(
    handler: Handler, middleware: Sequence[Middleware], *, is_async: bool, events: Events,
    clock: Clock,
) -> Handler:  # fmt: skip
    """A handler that calls its middleware; the same one where there is none.

    Given a list of messages, it calls the hooks for each of them.
    """
    if not middleware:
        return handler
    made = AsyncMiddlewareChain if is_async else MiddlewareChain
    return made(handler, middleware, events=events, clock=clock)


class MiddlewareChain:
    """Calls a plain handler and what is around it.

    Args:
        handler: the handler.
        middleware: the outermost first.
        events: told of hooks that fail.
        clock: measures the handler.
    """

    def __init__(
        self, handler: Handler, middleware: Sequence[Middleware], *, events: Events, clock: Clock
    ) -> None:
        self._handler: Callable[[Any], Any] = handler
        self._middleware = middleware
        self._events = events
        self._clock = clock

    def __call__(self, given: Message | list[Message]) -> object:
        """Calls the handler with what was given."""
        begun: list[tuple[Middleware, Message]] = []
        try:
            for message in _each(given):
                for hook in self._middleware:
                    if (awaits := hook.before(message)) is not None:
                        check_result(awaits)
                    begun.append((hook, message))
            started_s = self._clock.monotonic_s()
            if (result := self._handler(given)) is not None:
                check_result(result)
            elapsed_s = self._clock.monotonic_s() - started_s
        except WorkerEnd:
            raise
        except BaseException as error:  # whatever it is, a resource of `before` is to be closed
            self._notify(begun, "on_failure", error)
            raise
        self._notify(begun, "after", elapsed_s)
        return result

    def _notify(self, begun: list[tuple[Middleware, Message]], name: str, fact: object) -> None:
        for hook, message in reversed(begun):
            try:
                getattr(hook, name)(message, fact)
            except _FAILURES as problem:  # the message's fate is decided, others are to hear it
                self._complain(hook, name, message, problem)

    def _complain(
        self, hook: Middleware, name: str, message: Message, problem: BaseException
    ) -> None:
        if self._events:
            self._events.emit(
                "middleware.failed", topic=message.topic, group=message.group, id=message.id,
                key=message.key, attempt=message.attempt, error=problem,
                part=f"{type(hook).__name__}.{name}",
            )  # fmt: skip


class AsyncMiddlewareChain(MiddlewareChain):
    """Calls an async handler and what is around it, which may be async too."""

    async def __call__(self, given: Message | list[Message]) -> object:
        """Calls the handler with what was given."""
        begun: list[tuple[Middleware, Message]] = []
        try:
            for message in _each(given):
                for hook in self._middleware:
                    if (result := await _awaited(hook.before(message))) is not None:
                        check_result(result)
                    begun.append((hook, message))
            started_s = self._clock.monotonic_s()
            if (result := await self._handler(given)) is not None:
                check_result(result)
            elapsed_s = self._clock.monotonic_s() - started_s
        except WorkerEnd:
            raise
        except BaseException as error:  # whatever it is, a resource of `before` is to be closed
            await self._anotify(begun, "on_failure", error)
            raise
        await self._anotify(begun, "after", elapsed_s)
        return result

    async def _anotify(
        self, begun: list[tuple[Middleware, Message]], name: str, fact: object
    ) -> None:
        for hook, message in reversed(begun):
            try:
                await _awaited(getattr(hook, name)(message, fact))
            except _FAILURES as problem:  # the message's fate is decided, others are to hear it
                self._complain(hook, name, message, problem)


def _each(given: Message | list[Message]) -> Sequence[Message]:
    return given if isinstance(given, list) else (given,)


async def _awaited(result: Awaitable[object] | None) -> object:
    return await result if inspect.isawaitable(result) else result
