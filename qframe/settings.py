"""Options once: name, type, default, bounds and help of each, for code, CLI and docs alike.

`Settings` are the options of an app; each comes from the strongest source that names it:

    keyword arguments  >  QFRAME_<NAME> in the environment  >  qframe.toml  >  the default

`qframe.toml` is looked for in the current directory, or at the path in `QFRAME_CONFIG`.
`ConsumerOptions` are those of one `@consumer`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NoReturn,
    Self,
    TypedDict,
    get_args,
    get_origin,
)

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from qframe.config_file import CONFIG_VARIABLE, config_path, read_config
from qframe.errors import BadOption, NotSupported
from qframe.message import Message
from qframe.retry import Backoff
from qframe.topic import checked_name, duration_ms

PREFIX: Final = "QFRAME_"

OnDead = Callable[[Message, BaseException], object]


class Rule(NamedTuple):
    """What a value must be, in words, where its type does not say it."""

    text: str


def _seconds(value: Any) -> float:
    """Seconds, from a number of them, also one in a text, or from a text with a unit."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return duration_ms(value, "duration") / 1000
    return duration_ms(value, "duration") / 1000


def _backoff(value: Any) -> Any:
    return value if isinstance(value, Backoff) else Backoff(first=value)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


_NAME_RULE = Rule("1 to 64 of the characters A-Z a-z 0-9 _ . -")
_DURATION_RULE = Rule('seconds, or a text such as "500ms", "30s", "24h",')
_BACKOFF_RULE = Rule("a Backoff, or its first wait: seconds, or a text such as '2s'")

Seconds = Annotated[float, BeforeValidator(_seconds), _DURATION_RULE]
Name = Annotated[str, AfterValidator(lambda name: checked_name(name, "namespace")), _NAME_RULE]
MaybeName = Annotated[
    str, AfterValidator(lambda name: name and checked_name(name, "instance")), _NAME_RULE
]


class Settings(BaseSettings):
    """The options of an app; use `Settings.load`, whose errors name option and source."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    store: str = Field(
        "sqlite:///qframe.db",
        min_length=1,
        repr=False,  # it may hold a password
        description="Where messages are kept, as a URL.",
    )
    coordinator: str = Field(
        "", repr=False, description="Who shares out slots, as a URL; the store itself if empty."
    )
    session_timeout: Seconds = Field(
        10.0,
        ge=0.5,
        le=600,
        description="How long a worker may be unheard by ZooKeeper before others take its slots, "
        "in seconds; three times as long where the store shares them out.",
    )
    namespace: Name = Field(
        "qframe", description="Keeps apart what several systems keep in one store."
    )
    instance: MaybeName = Field(
        "", description="Tells this worker from others of a broadcast consumer; the host if empty."
    )
    max_body: int = Field(
        262_144, ge=1, le=2**30, description="The largest body of a message, in bytes."
    )
    publish_batch: int = Field(
        500, ge=1, le=10_000, description="How many messages go to the store in one call."
    )
    max_in_flight_bytes: int = Field(
        64 * 2**20,
        ge=65_536,
        le=2**40,
        description="How many bytes of bodies a consumer may hold at once.",
    )
    grace: Seconds = Field(
        30.0,
        ge=0,
        le=86_400,
        description="How long a stopping worker lets running handlers go on, in seconds.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = (
        Field("info", description="The least important log lines that are shown.")
    )
    log_format: Annotated[Literal["auto", "console", "json"], BeforeValidator(_lower)] = Field(
        "auto", description="How log lines look; auto: console on a terminal, otherwise json."
    )

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """The settings from all sources; an override that is None is not one.

        Raises:
            BadOption: if an option is unknown or its value not allowed, or the file is not usable.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        for name in given:
            if name not in cls.model_fields:
                _refuse_unknown("option", name, cls.model_fields)
        _refuse_misspelt_variables(cls.model_fields)
        try:
            return cls(**given)
        except ValidationError as error:
            raise _translated(cls, error, lambda name: _source_of(name, given)) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Where options come from, the strongest source first."""
        written = read_config()
        for name in written:
            if name not in cls.model_fields:
                _refuse_unknown(f"in {config_path()}: option", name, cls.model_fields)
        return init_settings, env_settings, InitSettingsSource(settings_cls, written)


class ConsumerOptions(BaseModel):
    """The options of one consumer, checked; made by `consumer_options`."""

    model_config = ConfigDict(
        arbitrary_types_allowed=True, extra="forbid", frozen=True, strict=True
    )

    threads: int = Field(8, ge=1, le=1024, description="How many handlers run at once.")
    max_attempts: int = Field(
        16, ge=1, le=1000, description="How many deliveries a message gets before it is dead."
    )
    backoff: Annotated[Backoff, BeforeValidator(_backoff), _BACKOFF_RULE] = Field(
        default_factory=Backoff,
        description="How long a message waits after a handler has failed.",
    )
    lease: Seconds = Field(
        30.0,
        ge=0.2,
        le=86_400,
        description="How long after its worker's death a message is due again, in seconds.",
    )
    auto_ack: bool = Field(
        True, description="Whether a message is settled when its handler returns."
    )
    max_in_flight: int = Field(
        3000, ge=1, le=100_000, description="How many messages the worker holds at once."
    )
    start: Literal["earliest", "latest"] = Field(
        "earliest", description="Where a group that is new to the topic begins."
    )
    broadcast: bool = Field(
        False, description="Whether every instance sees every message, from latest on by default."
    )
    broadcast_expires: Seconds = Field(
        604_800.0,
        ge=60,
        le=366 * 86_400,
        description="How long a broadcast consumer's place outlives its instance, in seconds.",
    )
    serial: bool = Field(
        False, description="Whether a slot's messages are handled one by one, whatever their keys."
    )
    on_dead: OnDead | None = Field(
        None,
        description="Called with the Message and the error when a message is given up.",
    )
    idempotent_checker: Any = Field(None, description="Recognises messages done before.")
    timeout: Any = Field(None, description="How long one handler may run.")
    rate_limit: Any = Field(None, description="How many messages a second are handled at most.")
    tags: Any = Field(None, description="Handles only messages with these tags.")
    batch: Any = Field(None, description="Hands a list of messages to the handler.")
    at_most_once: Any = Field(False, description="Settles a message before it is handled.")

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds, as stores take it."""
        return round(self.lease * 1000)


class ConsumerKeywords(TypedDict, total=False):
    """The keyword arguments of `consumer`, for editors and type checkers."""

    threads: int
    max_attempts: int
    backoff: Backoff | float | str
    lease: float | str
    auto_ack: bool
    max_in_flight: int
    start: Literal["earliest", "latest"]
    on_dead: OnDead | None
    idempotent_checker: Any
    timeout: Any
    rate_limit: Any
    tags: Any
    broadcast: bool
    broadcast_expires: float | str
    batch: Any
    serial: bool
    at_most_once: Any


_NOT_SERVED: Final = {
    "idempotent_checker": "leave it out, and let the handler recognise message.id itself",
    "timeout": "leave it out: a lease is renewed for as long as the handler runs",
    "rate_limit": "leave it out, and set threads= to what the other side can bear",
    "tags": "leave it out, and return at once from the handler unless message.tags fits",
    "batch": "leave it out: the handler gets one Message at a time",
    "at_most_once": "leave it out, and call message.ack() first in a handler with auto_ack=False",
}


def consumer_options(**given: Any) -> ConsumerOptions:
    """The options of a consumer, checked, defaults filled in.

    Raises:
        BadOption: if one is unknown or out of its bounds.
        NotSupported: if one is asked for that this version does not serve.
    """
    fields = ConsumerOptions.model_fields
    for name in given:
        if name not in fields:
            _refuse_unknown("consumer option", name, fields)
    if given.get("broadcast") is True:
        given.setdefault("start", "latest")
    try:
        options = ConsumerOptions(**given)
    except ValidationError as error:
        raise _translated(ConsumerOptions, error, lambda name: (name, given[name])) from None
    for name, remedy in _NOT_SERVED.items():
        if getattr(options, name) != fields[name].default:
            raise NotSupported(f"{name}= of a consumer", remedy)
    return options


class Option(NamedTuple):
    """One line of the table of options, for the CLI's help and the docs."""

    name: str
    rule: str
    default: str
    help: str


def option_table(model: type[BaseModel]) -> list[Option]:
    """Every option of `Settings` or `ConsumerOptions` that is served, in order."""
    return [
        Option(name, _rule(field), _shown_default(field), field.description or "")
        for name, field in model.model_fields.items()
        if name not in _NOT_SERVED
    ]


def _refuse_unknown(what: str, name: str, known: Iterable[str]) -> NoReturn:
    close = get_close_matches(name, known, n=1)
    remedy = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
    raise BadOption(what, name, "there is no such option", remedy)


def _refuse_misspelt_variables(known: Iterable[str]) -> None:
    """Refuses near misses only: QFRAME_PORT, say, may be another program's, or Kubernetes'."""
    names = [*known, CONFIG_VARIABLE.removeprefix(PREFIX).lower()]
    for variable in os.environ:
        name = variable.upper().removeprefix(PREFIX).lower()
        if not variable.upper().startswith(PREFIX) or name in names:
            continue
        if close := get_close_matches(name, names, n=1, cutoff=0.8):
            raise BadOption(
                "environment variable", variable, "there is no such option",
                f"did you mean {PREFIX}{close[0].upper()}?",
            )  # fmt: skip


def _source_of(name: str, given: Mapping[str, Any]) -> tuple[str, Any]:
    """An option's name and value as their source spells them, so that the reader finds them."""
    if name in given:
        return name, given[name]
    variable = PREFIX + name.upper()
    for spelt, value in os.environ.items():
        if spelt.upper() == variable and value:
            return spelt, value
    return f"in {config_path()}: {name}", read_config()[name]


def _translated(
    model: type[BaseModel], error: ValidationError, source: Callable[[str], tuple[str, Any]]
) -> BadOption:
    """The first of pydantic's complaints, in our words."""
    option = str(error.errors(include_url=False)[0]["loc"][0])
    name, value = source(option)
    field = model.model_fields[option]
    default = _shown_default(field)
    remedy = f"use {default}, or leave it out" if default else "leave it out"
    return BadOption(name, value, f"it must be {_rule(field)}", remedy)


def _rule(field: FieldInfo) -> str:
    """What a value of an option must be, in words: its type and its bounds."""
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
    simple: dict[Any, str] = {int: "a whole number", bool: "True or False", str: "a text"}
    return simple.get(kind, "a value")


def _shown_default(field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, float):
        return _number(default)
    return repr(default) if isinstance(default, int | str) else ""


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
