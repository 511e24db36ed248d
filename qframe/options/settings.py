"""Options once: name, type, default, bounds and help of each, for code, CLI and docs alike.

`Settings` are the options of an app; each comes from the strongest source that names it:

    keyword arguments  >  QFRAME_<NAME> in the environment  >  qframe.toml  >  the default

`qframe.toml` is looked for in the current directory, or at the path in `QFRAME_CONFIG`.
`options.consumer` has the options of a consumer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypedDict

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from qframe.errors import BadOption
from qframe.options.config_file import CONFIG_VARIABLE, config_path, read_config
from qframe.options.consumer import ConsumerOptions
from qframe.options.rules import MaybeName, Name, Seconds, refuse_unknown, translated

PREFIX: Final = "QFRAME_"


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


class Settings(BaseSettings):
    """The options of an app; use `Settings.load`, whose errors name option and source."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    store: str = Field(
        "sqlite:///qframe.db",
        min_length=1,
        repr=False,  # it may hold a password
        description="Where messages are kept, as a URL.",
    )
    coordinator: str = Field(
        "", repr=False, description="URL of the coordinator; the store itself if empty."
    )
    session_timeout: Seconds = Field(
        10.0,
        ge=0.5,
        le=600,
        description="How long a worker may be silent before others take its slots, in seconds; "
        "three times as long without ZooKeeper.",
    )
    namespace: Name = Field("qframe", description="Separates systems that share a store.")
    instance: MaybeName = Field(
        "", description="Name of this process for broadcast consumers; the host's name if empty."
    )
    max_body: int = Field(
        262_144, ge=1, le=2**30, description="The largest body of a message, in bytes."
    )
    publish_batch: int = Field(
        500, ge=1, le=10_000, description="The most messages per call to the store."
    )
    max_in_flight_bytes: int = Field(
        64 * 2**20,
        ge=65_536,
        le=2**40,
        description="The most bytes of bodies that a consumer holds at once.",
    )
    grace: Seconds = Field(
        30.0,
        ge=0,
        le=86_400,
        description="How long a stopping worker waits for running handlers, in seconds.",
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = (
        Field("info", description="The least important level that is logged.")
    )
    log_format: Annotated[Literal["auto", "console", "json"], BeforeValidator(_lower)] = Field(
        "auto", description="How log lines look; auto: console on a terminal, otherwise JSON."
    )
    log_errors: Annotated[Literal["auto", "full", "short"], BeforeValidator(_lower)] = Field(
        "auto",
        description="How errors of handlers are logged: full, with text and traceback; short, by "
        "type and line only, since a text may quote a body; auto: full in console lines on a "
        "terminal, otherwise short.",
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
                refuse_unknown("option", name, cls.model_fields)
        _refuse_misspelt_variables(cls.model_fields)
        try:
            return cls(**given)
        except ValidationError as error:
            raise translated(cls, error, lambda name: _source_of(name, given)) from None

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
                refuse_unknown(f"in {config_path()}: option", name, cls.model_fields)
        return init_settings, env_settings, InitSettingsSource(settings_cls, written)


class AppKeywords(TypedDict, total=False):
    """The other keyword arguments of `QFrame`, for editors and type checkers."""

    session_timeout: float | str
    instance: str
    max_body: int
    publish_batch: int
    max_in_flight_bytes: int
    grace: float | str
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["auto", "console", "json"]
    log_errors: Literal["auto", "full", "short"]


def _refuse_misspelt_variables(known: Iterable[str]) -> None:
    """Refuses consumers' options and near misses of the app's.

    All others are let pass: QFRAME_PORT, say, may be another program's, or Kubernetes'.
    """
    names = [*known, CONFIG_VARIABLE.removeprefix(PREFIX).lower()]
    for variable in os.environ:
        name = variable.upper().removeprefix(PREFIX).lower()
        if not variable.upper().startswith(PREFIX) or name in names:
            continue
        if name in ConsumerOptions.model_fields:
            raise BadOption(
                "environment variable", variable, f"{name} is an option of each consumer",
                f"use @app.consumer(…, {name}=…), or for a running group qframe tune",
            )  # fmt: skip
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
