"""Middleware around a handler: in which order it is called, and what its own errors change."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

import pytest

from qframe import BadHandler, BadOption, Message, Middleware, QFrame, Reject
from qframe.clock import SYSTEM_CLOCK
from qframe.events import Events
from qframe.message import Delivery
from qframe.options.consumer import consumer_options
from qframe.runtime.handler.binding import Handler
from qframe.runtime.handler.middleware import hooked

Calls = list[tuple[Any, ...]]


class Line:
    """As much of a line as a message's properties ask for."""

    topic = "t"
    group = "g"


def message(number: int = 1) -> Message:
    return Message(Delivery(f"m{number}", None, None, b"1", seq=number), cast("Any", Line()))


class Noting(Middleware):
    """Notes what it is told of; raises where it is asked to."""

    def __init__(
        self, name: str, calls: Calls, *, raises: str = "", kind: type[BaseException] = OSError
    ) -> None:
        self.name = name
        self.calls = calls
        self.raises = raises
        self.kind = kind

    def _note(self, hook: str, *facts: Any) -> None:
        self.calls.append((self.name, hook, *facts))
        if self.raises == hook:
            raise self.kind(f"{self.name}.{hook}")

    def before(self, message: Message) -> None:
        self._note("before", message.id)

    def after(self, message: Message, elapsed: float) -> None:
        assert elapsed >= 0
        self._note("after", message.id)

    def on_failure(self, message: Message, error: BaseException) -> None:
        self._note("on_failure", message.id, str(error))


class AsyncNoting(Noting):
    """The same, where each hook is to be awaited."""

    async def before(self, message: Message) -> None:  # type: ignore[override] # checked by both
        await asyncio.sleep(0)
        super().before(message)

    async def after(self, message: Message, elapsed: float) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().after(message, elapsed)

    async def on_failure(  # type: ignore[override]
        self, message: Message, error: BaseException
    ) -> None:
        await asyncio.sleep(0)
        super().on_failure(message, error)


class Called:
    """A handler and two middleware, called in one of the three ways there are."""

    def __init__(self, way: str) -> None:
        self.calls: Calls = []
        self.events = Events()
        self.told: list[tuple[str, str]] = []
        self.events.listen(lambda name, facts: self.told.append((name, facts["part"])))
        self.is_async = way != "plain"
        self.noting = AsyncNoting if way == "async hooks" else Noting
        self.raises: BaseException | None = None

    def middleware(
        self, name: str, raises: str = "", kind: type[BaseException] = OSError
    ) -> Middleware:
        return self.noting(name, self.calls, raises=raises, kind=kind)

    def __call__(self, given: Any, *middleware: Middleware) -> Any:
        """Calls the handler; answers what it answers."""
        handler = self._handle_async if self.is_async else self._handle
        made = hooked(
            cast("Handler", handler), middleware, is_async=self.is_async, events=self.events,
            clock=SYSTEM_CLOCK,
        )  # fmt: skip
        answer = made(given)
        return asyncio.run(answer) if inspect.iscoroutine(answer) else answer

    def _handle(self, given: Any) -> str:
        self.calls.append(("handler",))
        if self.raises is not None:
            raise self.raises
        return "answer"

    async def _handle_async(self, given: Any) -> str:
        await asyncio.sleep(0)
        return self._handle(given)


@pytest.fixture(params=["plain", "async", "async hooks"])
def called(request: pytest.FixtureRequest) -> Called:
    return Called(request.param)


def test_hooks_are_called_in_order_before_and_in_reverse_after(called: Called) -> None:
    assert called(message(), called.middleware("a"), called.middleware("b")) == "answer"
    assert called.calls == [
        ("a", "before", "m1"),
        ("b", "before", "m1"),
        ("handler",),
        ("b", "after", "m1"),
        ("a", "after", "m1"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"),
        KeyboardInterrupt("wrong"),
        GeneratorExit("wrong"),
        BaseException("wrong"),
    ],
)
def test_a_failure_of_any_sort_is_told_in_reverse_and_stays_what_it_was(
    called: Called, error: BaseException
) -> None:
    called.raises = error
    with pytest.raises(type(error), match="wrong"):
        called(message(), called.middleware("a"), called.middleware("b"))
    assert called.calls == [
        ("a", "before", "m1"), ("b", "before", "m1"), ("handler",),
        ("b", "on_failure", "m1", "wrong"), ("a", "on_failure", "m1", "wrong"),
    ]  # fmt: skip


def test_what_a_before_raises_is_the_failure_and_those_around_it_hear_it(called: Called) -> None:
    with pytest.raises(OSError, match=r"b\.before"):
        called(message(), called.middleware("a"), called.middleware("b", raises="before"))
    assert called.calls == [
        ("a", "before", "m1"),
        ("b", "before", "m1"),
        ("a", "on_failure", "m1", "b.before"),
    ]


@pytest.mark.parametrize("hook", ["after", "on_failure"])
@pytest.mark.parametrize("kind", [OSError, SystemExit, asyncio.CancelledError])
def test_what_a_later_hook_raises_is_told_and_changes_nothing_for_those_around_it(
    called: Called, hook: str, kind: type[BaseException]
) -> None:
    middleware = [called.middleware("a"), called.middleware("b", hook, kind)]
    if hook == "on_failure":
        called.raises = ValueError("wrong")
        with pytest.raises(ValueError, match="wrong"):
            called(message(), *middleware)
    else:
        assert called(message(), *middleware) == "answer"
    assert called.calls[-1][:2] == ("a", hook)
    assert called.told == [("middleware.failed", f"{called.noting.__name__}.{hook}")]


def test_a_cancellation_that_meets_an_after_changes_nothing_of_what_is_done() -> None:
    calls: Calls = []
    entered = asyncio.Event()

    class Slow(Middleware):
        async def after(  # type: ignore[override]
            self, message: Message, elapsed: float
        ) -> None:
            entered.set()
            await asyncio.Event().wait()

    async def handle(given: Any) -> None: ...

    made = hooked(
        handle, [Noting("a", calls), Slow()], is_async=True, events=Events(), clock=SYSTEM_CLOCK
    )

    async def cancel_it() -> None:
        task = asyncio.ensure_future(cast("Any", made(message())))
        await entered.wait()
        task.cancel()
        assert await task is None

    asyncio.run(cancel_it())
    assert [call[1] for call in calls] == ["before", "after"]


class Hidden(Middleware):
    def before(self, message: Message) -> Any:
        return asyncio.sleep(0)


@pytest.mark.parametrize("is_hidden", [True, False])
def test_what_a_plain_handler_or_its_before_leaves_to_be_awaited_is_a_failure(
    is_hidden: bool,
) -> None:
    calls: Calls = []

    async def later() -> None: ...

    def handle(_: Any) -> Any:
        calls.append(("handler", "handle"))
        return later()

    middleware = [Noting("a", calls), *([Hidden()] if is_hidden else [])]
    made = hooked(handle, middleware, is_async=False, events=Events(), clock=SYSTEM_CLOCK)
    with pytest.raises(BadHandler, match="it is awaitable"):
        made(message())
    inside = [] if is_hidden else ["handle"]
    assert [call[1] for call in calls] == ["before", *inside, "on_failure"]


class Refusing(Middleware):
    def before(self, message: Message) -> Any:
        return Reject("refused")


class Yielding(Middleware):
    def before(self, message: Message) -> Any:
        yield


def test_a_before_that_returns_an_error_or_yields_refuses_the_message(called: Called) -> None:
    with pytest.raises(Reject, match="refused"):
        called(message(), Refusing())
    with pytest.raises(BadHandler, match="it is a generator"):
        called(message(), Yielding())
    assert called.calls == []


def test_hooks_are_called_for_each_message_of_a_list(called: Called) -> None:
    assert called([message(1), message(2)], called.middleware("a")) == "answer"
    assert called.calls == [
        ("a", "before", "m1"),
        ("a", "before", "m2"),
        ("handler",),
        ("a", "after", "m2"),
        ("a", "after", "m1"),
    ]


def test_without_middleware_the_handler_is_called_itself() -> None:
    def handle(message: Message) -> None: ...

    assert hooked(handle, (), is_async=False, events=Events(), clock=SYSTEM_CLOCK) is handle


def test_hooks_that_are_not_overridden_do_nothing(called: Called) -> None:
    assert called(message(), Middleware()) == "answer"
    called.raises = ValueError("wrong")
    with pytest.raises(ValueError, match="wrong"):
        called(message(), Middleware())


class Needy(Middleware):
    def __init__(self, what: str) -> None:
        self.what = what


@pytest.mark.parametrize("wrong", [5, object(), ["x"], [Middleware(), None], Needy, str])
def test_what_is_no_middleware_is_refused(wrong: Any) -> None:
    with pytest.raises(BadOption, match="middleware"):
        consumer_options(middleware=wrong)
    with pytest.raises(BadOption, match=r"^middleware .*pass an instance of a"):
        QFrame().middleware(wrong)


def test_a_class_is_made_an_object_and_stays_a_class_for_who_decorates_it() -> None:
    app = QFrame()

    @app.middleware
    class Mine(Middleware): ...

    assert isinstance(Mine(), Middleware)
    [made] = consumer_options(middleware=Mine).middleware
    assert isinstance(made, Mine)


def test_async_hooks_of_a_plain_handler_are_refused() -> None:
    app = QFrame(store="sqlite:///:memory:")

    def handle(message: Message) -> None: ...

    with pytest.raises(BadOption, match=r"its `before` is async, and .*handle is not"):
        app.consumer("t", "g", middleware=AsyncNoting("a", []))(handle)
    assert app.consumers == []
