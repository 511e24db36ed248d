"""The flags that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from qframe.options.config_file import CONFIG_VARIABLE
from qframe.options.rules import options_of
from qframe.options.settings import PREFIX, Settings


def _help_of(name: str) -> str:
    option = options_of(Settings)[name]
    default = option.shown_default.strip("'")
    shown = f"; default: {default}" if default else ""
    return f"{option.help} [{PREFIX}{name.upper()}{shown}]"


Store = Annotated[str | None, typer.Option("--store", metavar="URL", help=_help_of("store"))]
TimersDb = Annotated[
    str | None, typer.Option("--timers-db", metavar="URL", help=_help_of("timers_db"))
]
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
        help=f"The file of options. [{CONFIG_VARIABLE}; default: qframe.toml, if there]",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Everything = Annotated[bool, typer.Option("--all", help="Include qframe's own topics.")]
After = Annotated[
    str, typer.Option("--from", metavar="TOPIC", help="Go on behind this topic, as was printed.")
]
Watch = Annotated[bool, typer.Option("--watch", help="Refresh every second, until Ctrl-C.")]
Limit = Annotated[
    int, typer.Option("--limit", min=1, max=100_000, metavar="N", help="At most this many.")
]

By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Who acts, for the audit; default: user@host."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
# Of a command that does not ask, beside one that does: a script need not know which is which.
NeverAsked = Annotated[bool, typer.Option("--yes", hidden=True)]

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
