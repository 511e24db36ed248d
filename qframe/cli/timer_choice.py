"""The timers that a command means: one by its key, or all that have what its options say."""

from __future__ import annotations

from typing import Annotated

from qframe.admin.timer_search import TIMER_STATES, TimerChoice
from qframe.cli.commands import BadCommand, check_beside
from qframe.cli.search import header_of
from qframe.cli.times import moment_of
from qframe.verbs.parameters import option

OfId = Annotated[str | None, option("--id", metavar="ID", help="Its message's id.")]
State = Annotated[str | None, option(metavar="STATE", help=f"One of {', '.join(TIMER_STATES)}.")]
Tag = Annotated[str | None, option(metavar="TAG", help="One of its tags.")]
Header = Annotated[
    list[str] | None, option(metavar="NAME[=VALUE]", help="A header; may be repeated.")
]
Since = Annotated[str | None, option(metavar="TIME", help="Due from then on.")]
Until = Annotated[str | None, option(metavar="TIME", help="Due before then.")]


def chosen(
    message_id: str | None,
    state: str | None,
    tag: str | None,
    header: list[str] | None,
    since: str | None,
    until: str | None,
) -> TimerChoice:
    """The timers that have all of this."""
    return {
        "id": message_id, "state": state, "tag": tag,
        "headers": dict(map(header_of, header or ())), "since": moment_of(since, "since"),
        "until": moment_of(until, "until"),
    }  # fmt: skip


def is_one(
    command: str, key: str | None, everything: bool, which: TimerChoice, *, dry_run: bool
) -> bool:
    """Whether a command is about one timer, and not about all that fit.

    Raises:
        BadCommand: if it names neither, or both, or has for one what chooses among all.
    """
    if (key is None) != everything:
        raise BadCommand(
            "command", command, "it needs a key, or --all, and not both",
            "give a KEY from `qframe timers list`, or --all",
        )  # fmt: skip
    if key is not None:
        given = {f"--{name.removesuffix('s')}": value or None for name, value in which.items()}
        check_beside(
            command, "a KEY", given | {"--dry-run": dry_run}, "give --all in place of the key"
        )
    return not everything
