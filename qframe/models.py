"""Bodies that are models: objects of any class with pydantic's `model_dump` and `model_validate`.

Models are told by these two methods, so pydantic is not imported for them. A model is published as
its JSON, under its fields' aliases, so that the same class reads it again.

Not every model comes back from its JSON: a secret is written as stars, and a field may be left out,
or have one alias for writing and another for reading. Pydantic's schema of a class says whether all
of its models come back. If it does not say so, each model is read again before it is published, and
refused unless it is equal. A model without such a schema is not checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, get_args

import msgspec

_BASES: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__index__),
    (float, float.__float__),
)
# The types of pydantic's schemas of which every value comes back, strict or not.
_WRAPPERS: Final = {"definitions", "definition-ref", "model", "model-fields", "model-field"}
_SCALARS: Final = {
    "none", "bool", "int", "float", "str", "bytes", "decimal", "date", "time", "datetime",
    "timedelta", "uuid", "enum", "literal",
}  # fmt: skip
_HOLDERS: Final = {
    "default", "nullable", "list", "tuple", "set", "frozenset", "dict", "tagged-union",
}  # fmt: skip
_EXACT: Final = _WRAPPERS | _SCALARS | _HOLDERS
_EXACT_KEYS: Final = {"str", "int", "uuid"}
_FIELD: Final = {"type", "schema", "metadata", "frozen", "validation_alias", "serialization_alias"}
_CONSTANTS: Final = {bool, int, str, type(None)}


class ModelRefused(ValueError):
    """Raised when a model refuses a body; its text names fields, and holds nothing of the body."""


class ModelLost(ValueError):
    """Raised when a model would not come back from its JSON as it is.

    Attributes:
        model: the model.
        why: what would be lost, by its field.
        remedy: what to do instead.
    """

    def __init__(self, model: object, why: str, remedy: str) -> None:
        super().__init__(why)
        self.model, self.why, self.remedy = model, why, remedy


def dumped(value: Any) -> Any:
    """A value as builtins, for encoders: a model, or a text or number of a class of its own.

    Raises:
        TypeError: if it is neither.
        ModelLost: if it is a model that cannot be dumped, or would not come back.
    """
    kind = type(value)
    form = _form_of(kind)  # type: ignore[arg-type]  # of a class mypy knows no hash
    if form is not None:
        return _dumped_model(value, form)
    for base, exact in _BASES:
        if isinstance(value, base) and kind is not bool:  # a bool is here as a key of a dict
            return exact(value)
    raise TypeError(f"Encoding objects of type {kind.__qualname__} is unsupported")


class _Form(NamedTuple):
    """How the models of a class are dumped."""

    is_round_trip: bool
    """Whether `Json` is dumped as a text again, and computed fields are left out."""
    is_exact: bool
    """Whether all come back, unless one of `parts` is of a subclass, whose own fields are lost."""
    parts: tuple[type, ...]
    """The classes of the models within."""


@lru_cache(maxsize=1024)
def _form_of(kind: type) -> _Form | None:
    """How the models of a class are dumped; None if it is not a class of models."""
    if not is_model(kind):
        return None
    schema = getattr(kind, "__pydantic_core_schema__", None)
    if not isinstance(schema, Mapping):
        return _Form(is_round_trip=False, is_exact=True, parts=())
    if _has_own_methods(kind):
        return _Form(is_round_trip=False, is_exact=False, parts=())
    nodes = list(_nodes(schema))
    parts = {node["cls"] for node in nodes if node["type"] == "model" and node is not schema}
    return _Form(
        is_round_trip=any(node["type"] == "json" or _forbids_computed(node) for node in nodes),
        is_exact=all(map(_is_exact, nodes)),
        parts=tuple(parts),
    )


def _dumped_model(model: Any, form: _Form) -> Any:
    try:
        if form.is_round_trip:
            builtins = model.model_dump(mode="json", by_alias=True, round_trip=True)
        else:
            builtins = model.model_dump(mode="json", by_alias=True)
    except Exception as error:  # serializers are the user's, and may raise anything
        raise ModelLost(
            model, f"its model_dump raises {type(error).__name__} ({error})",
            "mend its serializers, or publish a model that JSON can hold",
        ) from error  # fmt: skip
    if not form.is_exact or (form.parts and any(map(type.__subclasses__, form.parts))):
        _refuse_lost(model, builtins)
    return builtins


def _refuse_lost(model: Any, builtins: Any) -> None:
    """Reads a model again from its dump.

    Raises:
        ModelLost: if its class refuses the dump, or it comes back as another one.
    """
    kind = type(model)
    try:
        again = _validated(kind, msgspec.json.encode(builtins, enc_hook=dumped))
    except (ModelRefused, TypeError, RecursionError) as error:
        raise ModelLost(
            model, f"{kind.__qualname__} does not read what it writes ({error})",
            "give each field one alias and a type that reads what its serializer writes",
        ) from error  # fmt: skip
    try:
        if again == model:
            return
        changed = [name for name in kind.model_fields if not _is_same(again, model, name)]
    except Exception as error:  # an array has no truth
        raise ModelLost(
            model, f"what comes back cannot be compared with it ({type(error).__name__})",
            f"define __eq__ in {kind.__qualname__}",
        ) from error  # fmt: skip
    places = ", ".join(f"`{name}`" for name in changed) or "what is not in its fields"
    raise ModelLost(
        model, f"a handler would get it with another value of {places}",
        "use types that are written as they are, such as str for SecretStr and a discriminated "
        "union for subclasses, or define an __eq__ that leaves out what need not come back",
    )  # fmt: skip


def _is_same(one: Any, other: Any, field: str) -> bool:
    missing = object()
    return bool(getattr(one, field, missing) == getattr(other, field, missing))


# Pydantic's schemas: https://docs.pydantic.dev/latest/api/pydantic_core_schema/


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A schema and all within it, as far as their types are those that `_is_exact` knows."""
    yield schema
    for name in ("schema", "keys_schema", "values_schema", "items_schema", "definitions"):
        inner = schema.get(name, ())
        for each in [inner] if isinstance(inner, Mapping) else inner:
            yield from _nodes(each)
    for name in ("fields", "choices"):
        inner = schema.get(name, ())
        for each in inner.values() if isinstance(inner, Mapping) else inner:
            if isinstance(each, Mapping):
                yield from _nodes(each)


def _forbids_computed(node: Mapping[str, Any]) -> bool:
    """Whether it is a model that has computed fields, and takes them for unknown ones if read."""
    if node["type"] != "model" or not node["cls"].model_computed_fields:
        return False
    return node.get("config", {}).get("extra_fields_behavior") in {"forbid", "allow"}


def _has_own_methods(kind: Any) -> bool:
    """Whether a class dumps or reads its models in another way than pydantic."""
    methods = (kind.model_dump, getattr(kind, "model_validate_json", None))
    return any(getattr(method, "__module__", None) != "pydantic.main" for method in methods)


def _is_exact(node: Mapping[str, Any]) -> bool:
    """Whether all values of a node of a schema come back, if those within it do."""
    kind = node["type"]
    if kind not in _EXACT or "serialization" in node:
        return False
    match kind:
        case "model":
            return not (
                node.get("custom_init")
                or node.get("post_init")
                or any(map(_changes_form, node.get("config", {}).items()))
            )
        case "model-field":
            return _FIELD.issuperset(node) and (
                node.get("validation_alias") == node.get("serialization_alias")
            )
        case "dict":
            return {"keys_schema", "values_schema"} <= node.keys() and (
                node["keys_schema"]["type"] in _EXACT_KEYS
            )
        case "list" | "set" | "frozenset" | "tuple":
            return "items_schema" in node
        case "tagged-union":
            return isinstance(node["discriminator"], str)
        case "enum":
            return _CONSTANTS.issuperset(type(each.value) for each in node["members"])
        case "literal":
            return _CONSTANTS.issuperset(map(type, node["expected"]))
    return True


def _changes_form(setting: tuple[str, Any]) -> bool:
    """Whether a setting of a model changes what is written or read."""
    name, value = setting
    return (
        name.startswith(("ser_json_", "val_json_"))
        or (name, value) == ("validate_by_alias", False)
        or (name == "extra_fields_behavior" and value == "allow")
    )


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
