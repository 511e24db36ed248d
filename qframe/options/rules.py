"""The base of all options: types, rules in words, and error messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError
from pydantic.fields import FieldInfo

from qframe.errors import BadOption
from qframe.topic import checked_name, duration_ms

MOST_AT_ONCE: Final = 100_000


class Rule(NamedTuple):
    """The rule of a value in words, where its type does not say it, and a valid example."""

    text: str
    example: str = ""


def _seconds(value: Any) -> float:
    """Seconds, from a number of them, also one in a text, or from a text with a unit."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = float(value)
    return duration_ms(value, "duration") / 1000


_NAME_RULE = Rule("1 to 64 of the characters A-Z a-z 0-9 _ . -")
_DURATION_RULE = Rule('seconds, or a string such as "500ms", "30s", "24h",', '"30s"')

Seconds = Annotated[float, BeforeValidator(_seconds), _DURATION_RULE]
MaybeSeconds = Annotated[
    float | None, BeforeValidator(lambda value: value and _seconds(value)), _DURATION_RULE
]
Name = Annotated[str, AfterValidator(lambda name: checked_name(name, "namespace")), _NAME_RULE]
MaybeName = Annotated[
    str, AfterValidator(lambda name: name and checked_name(name, "instance")), _NAME_RULE
]


class Option(NamedTuple):
    """One line of the table of options, for the CLI's help and the docs."""

    name: str
    rule: str
    default: str
    help: str


def option_table(model: type[BaseModel]) -> list[Option]:
    """Every option of `Settings` or `ConsumerOptions` that is described, in order."""
    return [
        Option(name, _rule(field), _shown_default(field), field.description)
        for name, field in model.model_fields.items()
        if field.description
    ]


def checked_limit(limit: object) -> int:
    """How many of something to answer at most, if it is a whole number that makes sense.

    Raises:
        BadOption: if it does not.
    """
    if isinstance(limit, int) and not isinstance(limit, bool) and 1 <= limit <= MOST_AT_ONCE:
        return limit
    why = f"it must be a whole number from 1 to {MOST_AT_ONCE}"
    raise BadOption("limit", limit, why, "use 100")


def refuse_unknown(what: str, name: str, known: Iterable[str]) -> NoReturn:
    """Refuses the name of an option that there is not, with the one that may be meant."""
    close = get_close_matches(name, known, n=1)
    remedy = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    raise BadOption(what, name, "there is no such option", remedy)


def translated(
    model: type[BaseModel], error: ValidationError, source: Callable[[str], tuple[str, Any]]
) -> BadOption:
    """The first of pydantic's complaints, in our words."""
    option = str(error.errors(include_url=False)[0]["loc"][0])
    name, value = source(option)
    field = model.model_fields[option]
    return BadOption(name, value, f"it must be {_rule(field)}", _remedy(field))


def _remedy(field: FieldInfo) -> str:
    """A value that is allowed: the default, or else an example."""
    examples = [each.example for each in field.metadata if isinstance(each, Rule) and each.example]
    allowed = _shown_default(field) or next(iter(examples), "")
    return f"use {allowed}, or leave it out" if allowed else "leave it out for no value"


def _rule(field: FieldInfo) -> str:
    """An option's rule in words: its type and its bounds."""
    words = _type_in_words(field)
    bounds = [
        (word, getattr(limit, attribute))
        for word, attribute in (("from", "ge"), ("to", "le"))
        for limit in field.metadata
        if getattr(limit, attribute, None) is not None
    ]
    return " ".join([words, *(f"{word} {_number(bound)}" for word, bound in bounds)])


def _type_in_words(field: FieldInfo) -> str:
    for each in field.metadata:
        if isinstance(each, Rule):
            return each.text
    kind = field.annotation
    parts = [part for part in get_args(kind) if part is not NoneType]
    if get_origin(kind) is Literal:
        return f"one of {', '.join(parts)}"
    if kind is not None and NoneType in get_args(kind):
        return "a callable" if get_origin(parts[0]) is Callable else "a value"
    simple: dict[Any, str] = {int: "a whole number", bool: "True or False", str: "a string"}
    return simple.get(kind, "a value")


def _shown_default(field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, float):
        return _number(default)
    return repr(default) if isinstance(default, int | str) else ""


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
