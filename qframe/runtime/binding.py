"""How a handler's parameters are filled, found out once, when it is registered."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from qframe.codec import RAW, TYPE_HEADER
from qframe.errors import BadHandler, NotSupported, UndecodableBody
from qframe.message import Message

Handler = Callable[[Message], object]

_FILLABLE = (
    "annotate it: Message for the message, or the type of its body (dict, a dataclass, a Struct)"
)


def bind(function: Callable[..., Any]) -> Handler:
    """A function of a message that calls `function` with what its annotations ask for.

    Raises:
        BadHandler: if a parameter cannot be filled.
        NotSupported: if it is a coroutine function, or asks for a transaction or a batch.
    """
    if not callable(function):
        raise BadHandler("handler", function, "it cannot be called", "decorate a function")
    if inspect.iscoroutinefunction(function):
        raise NotSupported("an async handler", "write it as a plain function")
    name = getattr(function, "__qualname__", repr(function))
    fillers = [
        _filler(name, parameter, annotation)
        for parameter, annotation in _parameters(name, function)
    ]
    if sum(filler is not _the_message for filler in fillers) > 1:
        raise BadHandler(
            "handler", name, "two of its parameters would be the body",
            "annotate one with Message, or give the other a default",
        )  # fmt: skip
    match fillers:
        case []:
            return lambda _message: function()
        case [filler] if filler is _the_message:
            return function
        case [fill]:
            return lambda message: function(fill(message))
        case [one, two] if one is not two:
            return lambda message: function(one(message), two(message))
    raise BadHandler("handler", name, "the message is asked for twice", "ask for it once")


def name_of(function: Callable[..., Any]) -> str:
    """How a handler is called in logs and errors: `module.function`."""
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{getattr(function, '__module__', '?')}.{name}"


def _parameters(name: str, function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """The parameters that must be filled, each with its annotation, evaluated."""
    try:
        signature = inspect.signature(function)
        target = function if inspect.isroutine(function) else type(function).__call__
        hints = typing.get_type_hints(target)
    except (NameError, TypeError, ValueError) as error:
        raise BadHandler(
            "handler", name, f"its annotations cannot be read ({error})",
            "import the names that it uses where it is defined, outside TYPE_CHECKING",
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
            raise BadHandler(
                "parameter", f"{name}({parameter.name})", "it has no annotation", _FILLABLE
            )
        needed.append((parameter.name, hints[parameter.name]))
    return needed


def _the_message(message: Message) -> Message:
    return message


def _filler(name: str, parameter: str, annotation: Any) -> Callable[[Message], Any]:
    """What makes the value of one parameter."""
    if annotation is Message:
        return _the_message
    if inspect.isclass(annotation) and issubclass(annotation, Session | Connection):
        raise NotSupported(
            f"a {annotation.__name__} parameter ({name})",
            "open a session of your own in the handler, and make it idempotent by message.id",
        )
    if annotation == list[Message]:
        raise NotSupported(f"a handler of batches ({name})", "take one Message")
    if annotation is bytes:
        return lambda message: message.delivery.body
    if annotation is Any or annotation is object:
        return lambda message: message.body
    try:
        kind = msgspec.inspect.type_info(annotation)
        decode = msgspec.json.Decoder(annotation).decode
    except (TypeError, NotImplementedError) as error:
        raise BadHandler(
            "parameter",
            f"{name}({parameter})",
            f"a body cannot be decoded to it ({error})",
            _FILLABLE,
        ) from error
    if isinstance(kind, msgspec.inspect.CustomType):
        raise BadHandler(
            "parameter", f"{name}({parameter})", "nothing in JSON is decoded to its type", _FILLABLE
        )
    expected = getattr(annotation, "__name__", str(annotation))

    def body(message: Message) -> Any:
        delivery = message.delivery
        if delivery.headers is not None and delivery.headers.get(TYPE_HEADER) == RAW:
            raise UndecodableBody(delivery.id, expected, "it was published as bytes")
        try:
            return decode(delivery.body)
        except msgspec.DecodeError as error:
            raise UndecodableBody(delivery.id, expected, error) from error

    return body
