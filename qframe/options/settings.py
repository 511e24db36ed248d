"""Options once: name, type, default, bounds and help of each, for code, CLI and docs alike.

`Settings` are the options of an app; each comes from the strongest source that names it:

    keyword arguments  >  QFRAME_<NAME> in the environment  >  qframe.toml  >  the default

`qframe.toml` is looked for in the current directory, or at the path in `QFRAME_CONFIG`.
`options.consumer` has the options of a consumer.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Self, TypedDict

from qframe.codec import MAX_BODY
from qframe.errors import BadOption
from qframe.options.config_file import CONFIG_VARIABLE, config_path, read_config
from qframe.options.consumer import ConsumerOptions
from qframe.options.rules import (
    CheckedOptions,
    checked_options,
    named,
    one_of,
    options_of,
    refuse_unknown,
    seconds,
    text,
    whole,
)
from qframe.redaction import shown_url
from qframe.words import near_name

PREFIX: Final = "QFRAME_"
_URLS: Final = frozenset({"store", "coordinator", "timers_db"})


@dataclass(frozen=True, kw_only=True)
class Settings(CheckedOptions):
    """The options of an app; use `Settings.load`, whose errors name option and source."""

    # A URL may hold a password.
    store: Annotated[str, text(least=1), "Where messages are kept, as a URL."] = field(
        default="sqlite:///qframe.db", repr=False
    )
    coordinator: Annotated[str, text(), "URL of the coordinator; the store itself if empty."] = (
        field(default="", repr=False)
    )
    timers_db: Annotated[
        str, text(), "Beside a store in Redis, the URL of a database for topics of kind delay."
    ] = field(default="", repr=False)
    session_timeout: Annotated[
        float,
        seconds(0.5, 600),
        "How long a worker may be silent before others take its slots, in seconds; "
        "three times as long without ZooKeeper.",
    ] = 10.0
    namespace: Annotated[str, named("namespace"), "Separates systems that share a store."] = (
        "qframe"
    )
    instance: Annotated[
        str,
        named("instance", required=False),
        "Name of this process for broadcast consumers; the host's name if empty.",
    ] = ""
    max_body: Annotated[
        int,
        whole(1, 2**30, written=True),
        "The largest body of a message, and its largest headers, in bytes.",
    ] = MAX_BODY
    publish_batch: Annotated[
        int, whole(1, 10_000, written=True), "The most messages per call to the store."
    ] = 500
    max_in_flight_bytes: Annotated[
        int,
        whole(65_536, 2**40, written=True),
        "The most bytes of bodies that a consumer holds at once.",
    ] = 64 * 2**20
    grace: Annotated[
        float,
        seconds(0, 86_400),
        "How long a stopping worker waits for running handlers, in seconds.",
    ] = 30.0
    schedules: Annotated[
        Literal["auto", "on", "off"],
        one_of("auto", "on", "off", written=True),
        "Whether its workers lead the schedules of the store; auto: if its code declares some.",
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        one_of("debug", "info", "warning", "error", written=True),
        "The least important level that is logged.",
    ] = "info"
    log_format: Annotated[
        Literal["auto", "console", "json"],
        one_of("auto", "console", "json", written=True),
        "How log lines look; auto: console on a terminal, otherwise JSON.",
    ] = "auto"
    log_errors: Annotated[
        Literal["auto", "full", "short"],
        one_of("auto", "full", "short", written=True),
        "How errors of handlers are logged: full, with text and traceback; short, by "
        "type and line only, since a text may quote a body; auto: full in console lines on a "
        "terminal, otherwise short.",
    ] = "auto"

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """The settings from all sources; an override that is None is not one.

        Raises:
            BadOption: if an option is unknown or its value not allowed, or the file is not usable.
        """
        known = options_of(cls)
        given = {name: value for name, value in overrides.items() if value is not None}
        for name in given:
            _check_known("option", name, known)
        variables = _variables(known)
        written = read_config()
        for name in written:
            _check_known(f"in {config_path()}: option", name, known)
        return checked_options(cls, {
            **{name: (f"in {config_path()}: {name}", value) for name, value in written.items()},
            **variables,
            **{name: (name, value) for name, value in given.items()},
        })  # fmt: skip


def sources_of(settings: Settings) -> list[tuple[str, str, str]]:
    """Each setting's name, its value as text, and where `Settings.load` has found it.

    A URL is without its options, and without what may be a password.
    Flags of a command count as the variables that it sets.
    """
    variables, written, found = _variables(options_of(Settings)), read_config(), []
    for name in options_of(Settings):
        source = "default"
        if name in variables:
            source = variables[name][0]
        elif name in written:
            source = str(config_path())
        value = str(getattr(settings, name))
        found.append((name, shown_url(value) if name in _URLS else value, source))
    return found


class AppKeywords(TypedDict, total=False):
    """The other keyword arguments of `QFrame`, for editors and type checkers."""

    timers_db: str
    session_timeout: float | str
    instance: str
    max_body: int
    publish_batch: int
    max_in_flight_bytes: int
    grace: float | str
    schedules: Literal["auto", "on", "off"]
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["auto", "console", "json"]
    log_errors: Literal["auto", "full", "short"]


def _check_known(what: str, name: str, known: Collection[str]) -> None:
    """Sees that the app has an option of this name.

    Raises:
        BadOption: if it has none.
    """
    if name in known:
        return
    if name in options_of(ConsumerOptions):
        raise _of_consumers(what, name, name)
    refuse_unknown(what, name, known, "app")


def _of_consumers(what: str, shown: str, name: str) -> BadOption:
    return BadOption(
        what, shown, f"{name} is an option of each consumer",
        f"use @app.consumer(…, {name}=…), or for a running group qframe groups tune",
    )  # fmt: skip


def _variables(known: Collection[str]) -> dict[str, tuple[str, str]]:
    """The app's options in the environment: by name, the variable as it is spelt and its value.

    Raises:
        BadOption: for consumers' options and near misses of the app's. All others are let pass:
            QFRAME_PORT, say, may be another program's, or Kubernetes'.
    """
    names = [*known, CONFIG_VARIABLE.removeprefix(PREFIX).lower()]
    of_consumers = options_of(ConsumerOptions)
    found = {}
    for variable, value in os.environ.items():
        name = variable.upper().removeprefix(PREFIX).lower()
        if not variable.upper().startswith(PREFIX):
            continue
        if name in names:
            if value and name in known:
                found[name] = (variable, value)
        elif name in of_consumers:
            raise _of_consumers("environment variable", variable, name)
        elif near := near_name(name, names):
            raise BadOption(
                "environment variable", variable, "there is no such option",
                f"did you mean {PREFIX}{near.upper()}?",
            )  # fmt: skip
    return found
