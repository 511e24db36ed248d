"""`qframe dead`: shows dead letters, retries and drops them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import typer

from qframe.app.qframe import QFrame
from qframe.cli.asking import ask, check_chosen
from qframe.cli.commands import Commands
from qframe.cli.flags import AsJson, GroupName, Limit, TopicName
from qframe.cli.look import say_record
from qframe.cli.output import counted, say, say_json, table
from qframe.cli.records import as_json as record_as_json
from qframe.cli.records import second
from qframe.cli.target import Target, targeted

dead: Final = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Shows, retries and drops dead letters."
)

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="The messages' ids.")]
After = Annotated[
    str | None,
    typer.Option(metavar="PLACE", help="Only those after this dead_place, from --json."),
]
All = Annotated[bool, typer.Option("--all", help="All dead letters of the group.")]


@dead.command("list")
@targeted
def list_dead(
    target: Target,
    topic: TopicName,
    group: GroupName,
    limit: Limit = 100,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """Lists a group's dead letters, the oldest first."""
    with target.opened() as app:
        records = app.admin.dead(topic, group, limit, after=after)
    if as_json:
        say_json([{**record_as_json(each), "dead_place": str(each.dead_place)} for each in records])
    elif not records:
        say(f"no {'' if after is None else 'more '}dead letters in {topic}/{group}")
    else:
        table(
            ("id", "key", "attempts", "died", "error"),
            [
                (each.id, each.key, each.attempts, second(each.died_at_ms), each.error)
                for each in records
            ],
            cut=True,
        )
        if len(records) == limit:
            say(f"those behind them: --after {records[-1].dead_place}")


@dead.command()
@targeted
def show(
    target: Target,
    topic: TopicName,
    group: GroupName,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message's id.")],
    as_json: AsJson = False,
) -> None:
    """Shows one dead letter, with its error and traceback."""
    with target.opened() as app:
        record = app.admin.dead_show(topic, group, message_id)
        now_ms = app.store.now_ms()
    if as_json:
        say_json(record_as_json(record))
    else:
        say_record(record, now_ms)


@dead.command()
@targeted
def retry(
    target: Target,
    topic: TopicName,
    group: GroupName,
    ids: Ids = None,
    everything: All = False,
) -> None:
    """Makes dead letters due again, their attempts from zero."""
    with target.opened() as app:
        chosen = _chosen("dead retry", app, topic, group, ids, everything)
        done = app.admin.dead_retry(topic, group, chosen)
    say(f"{counted(done, 'message')} of {topic}/{group} due again")


@dead.command()
@targeted
def drop(
    target: Target,
    topic: TopicName,
    group: GroupName,
    ids: Ids = None,
    everything: All = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Removes dead letters for good; asks first, unless --yes."""
    with target.opened() as app:
        chosen = _chosen("dead drop", app, topic, group, ids, everything)
        if not yes:
            what = "all dead letters" if chosen == "all" else counted(len(chosen), "dead letter")
            ask(f"Drop {what} of {topic}/{group} for good?")
        done = app.admin.dead_drop(topic, group, chosen)
    say(f"{counted(done, 'message')} of {topic}/{group} dropped")


def _chosen(
    command: str, app: QFrame, topic: str, group: str, ids: list[str] | None, everything: bool
) -> list[str] | Literal["all"]:
    """The dead letters that were named, if all of them exist."""
    check_chosen(command, ids, everything, f"qframe dead list {topic} {group}")
    if not ids:
        return "all"
    distinct = list(dict.fromkeys(ids))
    for message_id in distinct:
        app.admin.dead_show(topic, group, message_id)
    return distinct
