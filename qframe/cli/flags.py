"""The flags that several commands share."""

from __future__ import annotations

from typing import Annotated

from qframe.options.config_file import CONFIG_VARIABLE
from qframe.options.rules import options_of
from qframe.options.settings import PREFIX, Settings
from qframe.verbs.parameters import argument, option


def _help_of(name: str) -> str:
    option = options_of(Settings)[name]
    default = option.shown_default.strip("'")
    shown = f"; default: {default}" if default else ""
    return f"{option.help} [{PREFIX}{name.upper()}{shown}]"


Store = Annotated[str | None, option("--store", metavar="URL", help=_help_of("store"))]
TimersDb = Annotated[str | None, option("--timers-db", metavar="URL", help=_help_of("timers_db"))]
Coordinator = Annotated[
    str | None, option("--coordinator", metavar="URL", help=_help_of("coordinator"))
]
Namespace = Annotated[str | None, option("--namespace", metavar="NAME", help=_help_of("namespace"))]
Config = Annotated[
    str | None,
    option(
        "--config",
        metavar="FILE",
        help=f"The file of options. [{CONFIG_VARIABLE}; default: qframe.toml, if there]",
    ),
]
AsJson = Annotated[bool, option("--json", help="Print JSON, for programs.")]
Everything = Annotated[bool, option("--all", help="Include qframe's own topics.")]
After = Annotated[
    str, option("--from", metavar="TOPIC", help="Go on behind this topic, as was printed.")
]
Watch = Annotated[bool, option("--watch", help="Refresh every second, until Ctrl-C.")]
Limit = Annotated[
    int, option("--limit", least=1, most=100_000, metavar="N", help="At most this many.")
]

By = Annotated[
    str | None,
    option("--by", metavar="NAME", help="Who acts, for the audit; default: user@host."),
]
Yes = Annotated[bool, option("--yes", help="Do not ask.")]
# Of a command that does not ask, beside one that does: a script need not know which is which.
NeverAsked = Annotated[bool, option("--yes", hidden=True)]

TopicName = Annotated[str, argument("TOPIC", "The topic's name.", completes="topic")]
GroupName = Annotated[str, argument("GROUP", "The group's name.", completes="group")]
KeyName = Annotated[str, argument("KEY", "The key.")]
