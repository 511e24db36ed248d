"""The flags that several commands share, and the app that they open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from qframe.app import QFrame
from qframe.config_file import CONFIG_VARIABLE
from qframe.errors import BadUrl
from qframe.settings import PREFIX, Settings, option_table

_SQLITE: Final = "sqlite:///"


def _help_of(name: str) -> str:
    option = next(option for option in option_table(Settings) if option.name == name)
    default = option.default.strip("'")
    shown = f"; default: {default}" if default else ""
    return f"{option.help} [{PREFIX}{name.upper()}{shown}]"


Store = Annotated[str | None, typer.Option("--store", metavar="URL", help=_help_of("store"))]
Coordinator = Annotated[
    str | None, typer.Option("--coordinator", metavar="URL", help=_help_of("coordinator"))
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help=_help_of("namespace"))
]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help=f"Where options are written. [{CONFIG_VARIABLE}; default: qframe.toml, if there]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Watch = Annotated[bool, typer.Option("--watch", help="Look again every second, until Ctrl-C.")]
Limit = Annotated[
    int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="How many at most.")
]

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]


def choose(
    store: str | None, namespace: str | None, config: str | None, coordinator: str | None = None
) -> Settings:
    """Makes the flags that were given this process's environment.

    Modules that a worker imports make apps of their own, and these are to use the same store.
    """
    if config is not None:
        os.environ[CONFIG_VARIABLE] = config
    given = {"store": store, "namespace": namespace, "coordinator": coordinator}
    settings = Settings.load(**given)
    for name, value in given.items():
        if value is not None:
            os.environ[PREFIX + name.upper()] = value
    return settings


@contextmanager
def opened(
    store: str | None,
    namespace: str | None,
    config: str | None,
    coordinator: str | None = None,
    *,
    reading: bool = True,
) -> Iterator[QFrame]:
    """The app that a command works on; one that only reads creates no database."""
    settings = choose(store, namespace, config, coordinator)
    if reading:
        _refuse_absent(settings.store)
    with QFrame() as app:
        yield app


def _refuse_absent(url: str) -> None:
    path, *_ = url.removeprefix(_SQLITE).split("?")
    if url.startswith(_SQLITE) and path not in ("", ":memory:") and not Path(path).exists():
        raise BadUrl(
            "store", url, "there is no such database yet",
            "publish or start a worker first, or name another one with --store",
        )  # fmt: skip
