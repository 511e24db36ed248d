"""Bodies that are models: objects of any class with pydantic's `model_dump` and `model_validate`.

Models are told by these two methods, so pydantic is not imported for them. A model is published as
its JSON, under its fields' aliases, so that the same class reads it again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import partial
from typing import Any, get_args

import msgspec


class ModelRefused(ValueError):
    """Raised when a model refuses a body; its text names fields, and holds nothing of the body."""


def dumped(value: Any) -> Any:
    """A model as builtins, for encoders.

    Raises:
        TypeError: if it is no model.
    """
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


def is_model(kind: Any) -> bool:
    """Whether it is a class of models."""
    return (
        inspect.isclass(kind)
        and callable(getattr(kind, "model_dump", None))
        and callable(getattr(kind, "model_validate", None))
    )


def _is_unchecked(kind: Any) -> bool:
    """Whether it is a dataclass of pydantic's, which msgspec fills without its checks."""
    return is_dataclass(kind) and hasattr(kind, "__pydantic_validator__")


def decoder_of(annotation: Any) -> Callable[[bytes], Any]:
    """Decodes JSON to a value of the annotated type; models may be anywhere in it.

    The decoder raises `msgspec.DecodeError`, whose text names the field of a model that is wrong
    and holds nothing of the body.

    Raises:
        TypeError: if nothing in JSON is decoded to the type.
    """
    info = msgspec.inspect.type_info(annotation)
    for kind in _custom(info, set()):
        if _is_unchecked(kind):
            name = kind.__qualname__
            raise TypeError(f"pydantic would not check the dataclass {name}; make it a BaseModel")
        if not is_model(kind):
            raise TypeError(f"nothing in JSON is decoded to {kind.__qualname__}")
    if isinstance(info, msgspec.inspect.CustomType):
        return partial(_whole, info.cls)
    return msgspec.json.Decoder(annotation, dec_hook=_part).decode


def _custom(info: Any, seen: set[int]) -> Iterator[type]:
    """The classes within a type that msgspec knows nothing of, or not all."""
    if isinstance(info, msgspec.inspect.CustomType) or _is_unchecked(getattr(info, "cls", None)):
        yield info.cls
    elif isinstance(info, tuple):
        for each in info:
            yield from _custom(each, seen)
    elif isinstance(info, msgspec.Struct) and id(info) not in seen:
        seen.add(id(info))  # a type may hold itself
        for name in info.__struct_fields__:
            yield from _custom(getattr(info, name), seen)


def _whole(kind: Any, body: bytes) -> Any:
    try:
        return _validated(kind, body)
    except ValueError as error:
        raise msgspec.ValidationError(str(error)) from error


def _part(kind: Any, value: Any) -> Any:
    return _validated(kind, msgspec.json.encode(value))


def _validated(kind: Any, body: bytes) -> Any:
    """A model from JSON, in which a strict model takes a text for a date, as it must.

    Raises:
        ModelRefused: if the model refuses it.
    """
    validate = getattr(kind, "model_validate_json", None)
    try:
        if validate is not None:
            return validate(body)
        return kind.model_validate(msgspec.json.decode(body))
    except Exception as error:  # a validator is the user's, and may raise anything
        raise ModelRefused(_reason(kind, error)) from error


def _reason(kind: Any, error: Exception) -> str:
    """Names the wrong fields and why, without values: errors are logged, and bodies are not."""
    list_errors = getattr(error, "errors", None)
    if not callable(list_errors):
        return str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__
    faults = [
        f"{fault['type'].replace('_', ' ')} - at `{_place(kind, fault['loc'])}`"
        for fault in list_errors()
    ]
    return "; ".join(faults[:3]) + ("; ..." if len(faults) > 3 else "")


def _place(kind: Any, location: tuple[str | int, ...]) -> str:
    """A field as msgspec writes it; a part that is no field may be a key of the body: `[...]`."""
    text = "$"
    for part in location:
        fields = getattr(kind, "model_fields", {})
        names = {each: field for name, field in fields.items() for each in _names(name, field)}
        if isinstance(part, int):
            text += f"[{part}]"
        elif part in names:
            text += f".{part}"
            kind = _model_in(names[part].annotation)
        else:
            return text + "[...]"
    return text


def _names(name: str, field: Any) -> Iterator[str]:
    """The names by which a body may have a field."""
    yield name
    alias = getattr(field, "validation_alias", None) or field.alias
    for choice in getattr(alias, "choices", [alias]):
        first = getattr(choice, "path", [choice])[0]
        if isinstance(first, str):
            yield first


def _model_in(annotation: Any) -> Any:
    """The first model in a type; None where there is none."""
    if is_model(annotation):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
