"""`qframe dead`: shows dead letters, retries and drops them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from qframe.app.qframe import QFrame
from qframe.cli.asking import ask, check_chosen
from qframe.cli.flags import AsJson, By, GroupName, Limit, NeverAsked, TopicName, Yes
from qframe.cli.look import say_record
from qframe.cli.output import counted, say, say_json, say_json_array, table
from qframe.cli.records import as_json as record_as_json
from qframe.cli.records import second
from qframe.cli.steps import Steps
from qframe.cli.target import Target, targeted
from qframe.cli.times import moment_of
from qframe.stores.records import Record
from qframe.verbs.parameters import argument, option

PAGE: Final = 1000


Ids = Annotated[list[str] | None, argument("ID", "The messages' ids.")]
After = Annotated[
    str | None,
    option(metavar="PLACE", help="Only those after this dead_place, from --json."),
]
All = Annotated[
    bool, option("--all", help="All that are dead now; what dies meanwhile is left alone.")
]
Until = Annotated[
    str | None,
    option(metavar="PLACE", help="With --all: only up to this dead_place, from --json."),
]
Since = Annotated[
    str | None,
    option(metavar="TIME", help="Only those that died from then on, as 2026-01-31T10:00Z."),
]
Cause = Annotated[
    str | None,
    option(metavar="CAUSE", help="All of this cause, by its name in `qframe dead causes`."),
]


@targeted
def list_dead(
    target: Target,
    topic: TopicName,
    group: GroupName,
    limit: Limit = 100,
    after: After = None,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Lists a group's dead letters, the oldest first."""
    with target.opened() as app:
        found = _listed(app, topic, group, limit, after, moment_of(since, "since"))
        if as_json:
            say_json_array(
                {**record_as_json(each), "dead_place": str(each.dead_place)} for each in found
            )
            return
        rows, place = [], None
        for each in found:
            died = second(each.died_at_ms)
            rows.append((each.id, each.key, each.attempts, died, each.error))
            place = each.dead_place
    if not rows:
        say(f"no {'' if after is None else 'more '}dead letters in {topic}/{group}")
    else:
        table(("id", "key", "attempts", "died", "error"), rows, cut=True)
        if len(rows) == limit:
            say(f"those behind them: --after {place}")


@targeted
def show(
    target: Target,
    topic: TopicName,
    group: GroupName,
    message_id: Annotated[str, argument("ID", "The message's id.")],
    as_json: AsJson = False,
) -> None:
    """Shows one dead letter, with its error and traceback."""
    with target.opened() as app:
        record = app.admin.dead_show(topic, group, message_id)
        now_ms = app.store.now_ms(app.store.topic(topic))
    if as_json:
        say_json(record_as_json(record))
    else:
        say_record(record, now_ms)


@targeted
def causes(
    target: Target,
    topic: TopicName,
    group: GroupName,
    limit: Limit = 10_000,
    since: Since = None,
    as_json: AsJson = False,
) -> None:
    """Groups dead letters by cause.

    A cause is the class of the error and the line that raised it.
    """
    with target.opened() as app:
        found = app.admin.dead_causes(topic, group, limit, since=moment_of(since, "since"))
    if as_json:
        say_json({"topic": topic, "group": group, **msgspec.to_builtins(found)})
    elif not found.causes:
        say(f"no dead letters in {topic}/{group}")
    else:
        table(
            ("cause", "dead", "last hour", "hour before", "last died", "error", "at"),
            [
                (each.name, each.count, each.last_hour, each.hour_before, second(each.last_ms),
                 each.error, each.place)
                for each in found.causes
            ],
            cut=True,
        )  # fmt: skip
        if not found.is_all:
            say(f"these are the first {found.looked_at}; look at more with --limit")
        say(f"retry those of one: qframe dead retry {topic} {group} --cause NAME")


@targeted
def retry(
    target: Target,
    topic: TopicName,
    group: GroupName,
    ids: Ids = None,
    everything: All = False,
    since: Since = None,
    until: Until = None,
    cause: Cause = None,
    yes: NeverAsked = False,  # noqa: ARG001
    by: By = None,
) -> None:
    """Makes dead letters due again, their attempts from zero.

    It works in steps of 500, and can be stopped by Ctrl-C.
    """
    with target.acting(by) as (app, admin):
        chosen = _chosen(
            "dead retry", app, topic, group, ids, everything or bool(cause or since or until)
        )
        with _steps(f"of {topic}/{group} due again") as steps:
            count = admin.dead_retry(
                topic, group, chosen, since=moment_of(since, "since"), until=until, cause=cause,
                on_progress=steps.tell,
            )  # fmt: skip
        say(steps.total(count))


@targeted
def drop(
    target: Target,
    topic: TopicName,
    group: GroupName,
    ids: Ids = None,
    everything: All = False,
    since: Since = None,
    until: Until = None,
    cause: Cause = None,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Removes dead letters for good; asks first, unless --yes.

    It works in steps of 500, and can be stopped by Ctrl-C.
    """
    with target.acting(by) as (app, admin):
        chosen = _chosen(
            "dead drop", app, topic, group, ids, everything or bool(cause or since or until)
        )
        if not yes:
            which = f" of cause {cause}" if cause else ""
            which += f" since {since}" if since else ""
            which += f" until {until}" if until else ""
            what = (
                f"all dead letters{which}" if chosen == "all"
                else counted(len(chosen), "dead letter")
            )  # fmt: skip
            ask(f"Drop {what} of {topic}/{group} for good?")
        with _steps(f"of {topic}/{group} dropped") as steps:
            count = admin.dead_drop(
                topic, group, chosen, since=moment_of(since, "since"), until=until, cause=cause,
                on_progress=steps.tell,
            )  # fmt: skip
        say(steps.total(count))


def _listed(
    app: QFrame, topic: str, group: str, limit: int, after: str | None,
    since: datetime | float | None,
) -> Iterator[Record]:  # fmt: skip
    """Dead letters, page by page, so that no more than a page of them is in memory."""
    place: Record | str | None = after
    while limit > 0:
        page = app.admin.dead(topic, group, min(limit, PAGE), after=place, since=since)
        yield from page
        if len(page) < PAGE:
            return
        limit -= PAGE
        place = page[-1]


def _steps(done: str) -> Steps:
    return Steps("message", done, "the others are still dead")


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
