"""How a handler's parameters are filled, found out once, when it is registered."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from qframe.codec import RAW, TYPE_HEADER
from qframe.errors import BadHandler, UndecodableBody
from qframe.hooks import is_async
from qframe.idempotency.awaited import (
    is_async_connection,
    is_async_session,
    is_connection,
    is_session,
)
from qframe.idempotency.base import Checker
from qframe.message import Message
from qframe.models import decoder_of
from qframe.runtime.handler.attempt import Attempt

Handler = Callable[[Attempt], object]
BatchHandler = Callable[[list[Attempt]], object]

_ASKED = ("message", "session", "connection", "connection")
_FILLABLE = (
    "annotate it: Message for the message, or the type of its body (dict, a dataclass, a Struct, "
    "a pydantic model)"
)


def bind(function: Callable[..., Any]) -> Handler:
    """A function of a message that calls `function` with what its annotations ask for.

    That of an async function returns what is to be awaited.

    Raises:
        BadHandler: if a parameter cannot be filled, or it is a generator.
    """
    name = _checked(function)
    fillers: list[Callable[[Attempt], Any]] = [
        _filler(name, parameter, annotation)
        for parameter, annotation in _parameters(name, function)
    ]
    fixed = (_the_message, _the_session, _the_connection, _the_async_connection)
    if sum(filler not in fixed for filler in fillers) > 1:
        raise BadHandler(
            "handler", name, "two of its parameters would receive the body",
            "annotate one with Message, or give the other a default",
        )  # fmt: skip
    for filler, asked in zip(fixed, _ASKED, strict=True):
        if fillers.count(filler) > 1:
            raise BadHandler(
                "handler", name, f"two parameters ask for the {asked}", "keep one of them"
            )
    fill: Callable[[Attempt], Any]
    match fillers:
        case []:
            return lambda _message: function()
        case [only] if only is _the_message:
            return function
        case [fill]:
            return lambda message: function(fill(message))
        case [one, two]:
            return lambda message: function(one(message), two(message))
        case _:
            return lambda message: function(*[fill(message) for fill in fillers])


def bind_batch(function: Callable[..., Any]) -> BatchHandler:
    """A function of a batch that calls `function` with what its annotations ask for.

    Raises:
        BadHandler: if it does not ask for the batch, or for something else than a transaction.
    """
    name = _checked(function)
    asked = _parameters(name, function)
    fillers: list[Callable[[Attempt], Any] | None] = []
    for parameter, annotation in asked:
        if _is_batch(annotation):
            fillers.append(None)
        elif _awaits_transaction(annotation) is not None:
            fillers.append(_filler(name, parameter, annotation))
        else:
            raise BadHandler(
                "parameter", f"{name}({parameter})", "its consumer has batch=, and a batch is not "
                f"{_name_of_type(annotation)}",
                "annotate it: list[Message] for the batch; each message's body is message.body",
            )  # fmt: skip
    if fillers.count(None) != 1 or len(fillers) > 2:
        raise BadHandler(
            "handler", name, "a handler of batches asks for one list[Message], and at most one "
            "Session or Connection", "write `def handle(messages: list[Message])`",
        )  # fmt: skip
    given = [fill for fill in fillers if fill is not None]
    if not given:
        return function
    [fill] = given
    if fillers[0] is None:
        return lambda messages: function(messages, fill(messages[0]))
    return lambda messages: function(fill(messages[0]), messages)


def check_transaction(function: Callable[..., Any], checker: Checker | None) -> None:
    """Checks that a handler asks for a transaction if, and only if, its checker has one to give.

    Raises:
        BadHandler: otherwise, or if one of them is async and the other is not.
    """
    name = name_of(function)
    kinds = [_awaits_transaction(each) for _, each in _parameters(name, function)]
    asks = any(kind is not None for kind in kinds)
    gives = checker is not None and checker.is_transactional
    if asks and not gives:
        raise BadHandler(
            "handler", name, "it asks for a Session or Connection, and has no TransactionalChecker",
            "add idempotent_checker=TransactionalChecker(engine), or open one in the handler",
        )  # fmt: skip
    awaits = is_async(function)
    given_async = gives and getattr(checker, "is_async", False)
    if gives and awaits != given_async:
        raise BadHandler(
            "handler", name, "a TransactionalChecker of an AsyncEngine is for async handlers, "
            "that of a plain Engine for plain ones", "make both async, or neither",
        )  # fmt: skip
    wrong = [each for each in kinds if each is not None and each != given_async]
    if gives and wrong:
        raise BadHandler(
            "handler", name, "its parameter does not match its checker's engine",
            "use AsyncSession or AsyncConnection with an AsyncEngine, "
            "Session or Connection with a plain Engine",
        )  # fmt: skip
    if gives and not asks:
        raise BadHandler(
            "handler", name, "it does not ask for its TransactionalChecker's transaction",
            "add a parameter `session: Session` or `connection: Connection` of SQLAlchemy's (or an "
            "AsyncSession, AsyncConnection) and make all changes by it, or use a DatabaseChecker",
        )  # fmt: skip


def name_of(function: Callable[..., Any]) -> str:
    """How a handler is called in logs and errors: `module.function`."""
    inner = _inner(function)
    name = getattr(inner, "__qualname__", type(inner).__name__)
    return f"{getattr(inner, '__module__', '?')}.{name}"


def module_run_twice(function: Callable[..., Any], other: Callable[..., Any]) -> str | None:
    """The module that runs as `__main__` too, if these are one function of its file."""
    (module, place), (other_module, other_place) = _place_of(function), _place_of(other)
    modules = {module, other_module} - {"__main__"}
    is_one = module != other_module and place == other_place is not None
    return modules.pop() if is_one and len(modules) == 1 else None


def _place_of(function: Callable[..., Any]) -> tuple[str, tuple[Path, str] | None]:
    """A function's module, and its file and name there, where there is a file."""
    module = str(getattr(_inner(function), "__module__", None))
    file = getattr(sys.modules.get(module), "__file__", None)
    name = name_of(function).removeprefix(f"{module}.")
    return module, None if file is None else (Path(file).resolve(), name)


def _checked(function: Callable[..., Any]) -> str:
    """The name of what may be a handler.

    Raises:
        BadHandler: if it cannot be called, or is a generator.
    """
    if not callable(function):
        raise BadHandler("handler", function, "it cannot be called", "decorate a function")
    if inspect.isclass(function):
        raise BadHandler(
            "handler", name_of(function), "it is a class; calling it would only create an object",
            "decorate a function, or register a method of the object: consumer(…)(thing.handle)",
        )  # fmt: skip
    called = getattr(function, "__call__", function)  # noqa: B004 - of an object
    if any(map(_is_generator, (function, called))):
        raise BadHandler(
            "handler", name_of(function), "it is a generator function, and calling it runs nothing",
            "remove its yield",
        )  # fmt: skip
    return getattr(_inner(function), "__qualname__", repr(function))


def _is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a `functools.partial`, which has the name and the annotations."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _parameters(name: str, function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """The parameters that must be filled, each with its annotation, evaluated."""
    try:
        signature = inspect.signature(function)
        inner = _inner(function)
        target = inner if inspect.isroutine(inner) else type(inner).__call__
        hints = typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError, ValueError) as error:
        raise BadHandler(
            "handler", name, f"its annotations cannot be read ({error})",
            "import or define the names that they use in the module itself, outside TYPE_CHECKING",
        ) from error  # fmt: skip
    needed = []
    for parameter in signature.parameters.values():
        if parameter.default is not parameter.empty:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise BadHandler(
                "parameter", f"{name}({parameter.name})", "it is keyword-only",
                "make it positional, or give it a default",
            )  # fmt: skip
        if parameter.name not in hints:
            raise _unannotated(name, parameter.name)
        needed.append((parameter.name, _plain(hints[parameter.name])))
    if not needed:
        _check_stars(name, signature)
    return needed


def _plain(annotation: Any) -> Any:
    """The annotation; without what is said beside it, where it is not the type of a body."""
    if typing.get_origin(annotation) is not Annotated:
        return annotation
    kind = typing.get_args(annotation)[0]
    is_body = kind is not Message and not _is_batch(kind) and _awaits_transaction(kind) is None
    return annotation if is_body else kind


def _is_batch(annotation: Any) -> bool:
    return typing.get_origin(annotation) is list and typing.get_args(annotation) == (Message,)


def _check_stars(name: str, signature: inspect.Signature) -> None:
    """Refuses `*args` and `**kwargs`, which get nothing: mostly those of a wrapper."""
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        raise BadHandler(
            "handler", f"{name}{signature}", "its parameters have no annotations",
            "annotate them; if a decorator wraps your handler, add @functools.wraps(handler) to it",
        )  # fmt: skip


def _unannotated(name: str, parameter: str) -> BadHandler:
    """The error of a parameter without an annotation, with what helps in its case."""
    remedy = _FILLABLE
    if name.endswith("<lambda>"):
        remedy = "write a def: the parameters of a lambda cannot be annotated"
    elif parameter in ("self", "cls"):
        remedy = (
            "register the bound method of an object: consumer(…)(thing.handle); "
            "or decorate a function"
        )
    return BadHandler("parameter", f"{name}({parameter})", "it has no annotation", remedy)


def _name_of_type(annotation: Any) -> str:
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)


def _the_message(message: Attempt) -> Message:
    return message


def _the_session(message: Attempt) -> Any:
    return message.effect.transaction.session


def _the_connection(message: Attempt) -> Any:
    return message.effect.transaction.connection


def _the_async_connection(message: Attempt) -> Any:
    return message.effect.transaction.awaited


def _awaits_transaction(annotation: Any) -> bool | None:
    """Whether it asks for a transaction that is awaited; None if it asks for none."""
    if is_async_session(annotation) or is_async_connection(annotation):
        return True
    if is_session(annotation) or is_connection(annotation):
        return False
    return None


def _filler(name: str, parameter: str, annotation: Any) -> Callable[[Attempt], Any]:
    """The function that makes the value of one parameter."""
    if annotation is Message:
        return _the_message
    if is_async_connection(annotation):
        return _the_async_connection
    if is_async_session(annotation):
        return _the_session
    if _awaits_transaction(annotation) is not None:
        return _the_session if is_session(annotation) else _the_connection
    if _is_batch(annotation):
        raise BadHandler(
            "parameter", f"{name}({parameter})", "it asks for a batch; its consumer has no batch=",
            "add batch=Batch(500, '50ms') to the consumer, or take one Message",
        )  # fmt: skip
    if Message in typing.get_args(annotation):
        raise BadHandler(
            "parameter", f"{name}({parameter})", "a message is always there, and nothing else is",
            "annotate it with Message alone",
        )  # fmt: skip
    if annotation is bytes:
        return lambda message: message.delivery.body
    if annotation is Any or annotation is object:
        return lambda message: message.body
    try:
        decode = decoder_of(annotation)
    except (TypeError, NotImplementedError) as error:
        raise BadHandler(
            "parameter",
            f"{name}({parameter})",
            f"a body cannot be decoded as this type ({error})",
            _FILLABLE,
        ) from error
    expected = _name_of_type(annotation)

    def body(message: Attempt) -> Any:
        delivery = message.delivery
        if delivery.headers is not None and delivery.headers.get(TYPE_HEADER) == RAW:
            raise UndecodableBody(delivery.id, expected, "it was published as bytes")
        try:
            return decode(delivery.body)
        except msgspec.DecodeError as error:
            raise UndecodableBody(delivery.id, expected, error) from error

    return body
