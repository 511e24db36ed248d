"""Rules of options: how each is written down, checked, shown, and refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from math import inf
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    NoReturn,
    TypeVar,
    cast,
    get_origin,
    get_type_hints,
)

from qframe.digits import decimal_number, whole_number
from qframe.errors import BadInput, BadOption
from qframe.topic import checked_count, checked_name, duration_ms
from qframe.words import Door, remedy_for

MOST_AT_ONCE: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class CheckedOptions:
    """Options of something, each a field `name: Annotated[type, Rule, help] = default`.

    Attributes:
        given: the names of those that were given, and are no defaults.
    """

    given: frozenset[str] = field(default=frozenset(), repr=False, compare=False)


Checked = TypeVar("Checked", bound=CheckedOptions)


class Rule(NamedTuple):
    """The rule that a value follows.

    Attributes:
        text: what it must be, in words.
        check: returns the value as it is kept; raises a `ValueError` if it is not allowed.
        example: a value that is allowed, for options whose default shows none.
    """

    text: str
    check: Callable[[Any], Any]
    example: str = ""


def whole(least: int, most: int, example: str = "", *, written: bool = False) -> Rule:
    """A whole number; if `written`, also in a text, as environment variables have it."""

    def check(value: Any) -> int:
        if written and isinstance(value, str):
            value = whole_number(value)
        elif written and isinstance(value, float) and value.is_integer():
            value = int(value)
        _require(isinstance(value, int) and not isinstance(value, bool) and least <= value <= most)
        return int(value)

    return Rule(f"a whole number from {least} to {most}", check, example)


def seconds(least: float, most: float) -> Rule:
    """A duration, kept in seconds; in a text a number without a unit is one of seconds."""

    def check(value: Any) -> float:
        if isinstance(value, str):
            with suppress(ValueError):
                value = decimal_number(value)
        kept_s = inf
        with suppress(BadOption):  # the text of the rule has the bounds too
            kept_s = duration_ms(value, "duration") / 1000
        _require(least <= kept_s <= most)
        return kept_s

    text = 'seconds, or a string such as "500ms", "30s", "24h",'
    return Rule(f"{text} from {least} to {most}", check, '"30s"')


def one_of(*values: str, written: bool = False) -> Rule:
    """One of a few texts; if `written`, in any case."""

    def check(value: Any) -> str:
        if written and isinstance(value, str):
            value = value.lower()
        _require(value in values)
        return str(value)

    return Rule(f"one of {', '.join(values)}", check)


def text(*, least: int = 0) -> Rule:
    """A text of at least so many characters."""

    def check(value: Any) -> str:
        _require(isinstance(value, str) and len(value) >= least)
        return str(value)

    return Rule("a string", check)


def named(what: str, *, required: bool = True) -> Rule:
    """A name, as a namespace has one; an empty one is allowed if none is required."""

    def check(value: Any) -> str:
        return "" if value == "" and not required else checked_name(value, what)

    return Rule("1 to 64 of the characters A-Z a-z 0-9 _ . -", check)


def instance(kind: type, text: str, example: str = "") -> Rule:
    """An object of a type."""

    def check(value: Any) -> Any:
        _require(isinstance(value, kind))
        return value

    return Rule(text, check, example)


def maybe(rule: Rule) -> Rule:
    """A rule, or None."""
    return rule._replace(check=lambda value: None if value is None else rule.check(value))


def _called(value: Any) -> Any:
    _require(callable(value))
    return value


FLAG: Final = instance(bool, "True or False")
CALLABLE: Final = Rule("a callable", _called)


def _require(is_allowed: bool) -> None:
    if not is_allowed:
        raise ValueError


class Option(NamedTuple):
    """One of them, for checks, the CLI's help and the docs."""

    name: str
    rule: Rule
    default: Any
    help: str

    @property
    def shown_default(self) -> str:
        """The default, as code has it; nothing for one that is not simple."""
        if isinstance(self.default, float):
            return f"{self.default:g}"
        return repr(self.default) if isinstance(self.default, int | str) else ""

    @property
    def remedy(self) -> str:
        """A value that is allowed, and how to leave the option out."""
        allowed = self.shown_default or self.rule.example
        return f"use {allowed}, or leave it out" if allowed else "leave it out for no value"


def options_of(model: type[CheckedOptions]) -> Mapping[str, Option]:
    """Options by their names, in order."""
    return _options_of(cast("Any", model))  # a type is hashable, which mypy does not see


@cache
def _options_of(model: Any) -> Mapping[str, Option]:
    found = {}
    for name, hint in get_type_hints(model, include_extras=True).items():
        if get_origin(hint) is Annotated:
            rule, text = hint.__metadata__
            found[name] = Option(name, rule, getattr(model, name, None), text)
    return MappingProxyType(found)


def checked_options(model: type[Checked], given: Mapping[str, tuple[str, Any]]) -> Checked:
    """The options that were given, each checked; defaults stand for the others.

    Args:
        model: the class of the options.
        given: by each option's name, the name and the value as their source spells them.

    Raises:
        BadOption: for the first that is not allowed; with what its rule says, if that says why.
    """
    values = {}
    for option in options_of(model).values():
        if option.name not in given:
            continue
        name, value = given[option.name]
        try:
            values[option.name] = option.rule.check(value)
        except BadInput as error:
            raise BadOption(name, value, error.why, error.remedy) from error
        except ValueError:
            raise BadOption(name, value, f"it must be {option.rule.text}", option.remedy) from None
    return model(**values, given=frozenset(given))


def checked_limit(limit: object) -> int:
    """How many of something to answer at most, if it is a whole number that makes sense.

    Raises:
        BadOption: if it does not.
    """
    return checked_count("limit", limit, "use 100", MOST_AT_ONCE)


def refuse_unknown(
    what: str, name: str, known: Collection[str], door: Door | None = None
) -> NoReturn:
    """Refuses an unknown name of an option or parameter; names the one that is meant, and all."""
    why = f"there is no such {what.rpartition(' ')[2]}"
    raise BadOption(what, name, why, remedy_for(name, known, door))
