"""`qframe groups pause`, `resume`, `paused`, `qframe keys pause`, `resume`: what is not handled."""

from __future__ import annotations

from typing import Annotated

import msgspec

from qframe.app.qframe import QFrame
from qframe.cli.flags import AsJson, By, GroupName, KeyName, TopicName
from qframe.cli.output import say, say_json, say_unknown, table
from qframe.cli.records import second
from qframe.cli.target import Target, targeted
from qframe.cli.tune import WITHIN, show_tuning
from qframe.stores.types import TopicList
from qframe.verbs.parameters import argument, option

Group = Annotated[
    str | None, argument("GROUP", "The group; all of the topic if left out.", completes="group")
]
Why = Annotated[str | None, option(metavar="TEXT", help="A reason, for those who find it paused.")]


@targeted
def pause(
    target: Target,
    topic: TopicName,
    group: Group = None,
    why: Why = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Pauses a group, or all of a topic, until it is resumed.

    Handlers finish the messages in hand. Nothing is lost: the group keeps collecting messages.
    """
    with target.acting(by) as (app, admin):
        admin.pause(topic, group, why=why)
        _show(app, topic, group, as_json=as_json)


@targeted
def pause_key(
    target: Target,
    topic: TopicName,
    group: GroupName,
    key: KeyName,
    why: Why = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Pauses a key until it is resumed; other keys go on."""
    with target.acting(by) as (app, admin):
        admin.pause(topic, group, key=key, why=why)
        _show(app, topic, group, as_json=as_json)


@targeted
def resume(
    target: Target,
    topic: TopicName,
    group: Group = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Ends a pause of a group, or of all groups of a topic.

    Keys that are paused singly stay so: see qframe keys resume.
    """
    with target.acting(by) as (app, admin):
        resumed = admin.resume(topic, group)
        _say_resumed(app, topic, group, None, resumed, as_json=as_json)


@targeted
def resume_key(
    target: Target,
    topic: TopicName,
    group: GroupName,
    key: KeyName,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Ends the pause of a key."""
    with target.acting(by) as (app, admin):
        resumed = admin.resume(topic, group, key=key)
        _say_resumed(app, topic, group, key, resumed, as_json=as_json)


def _say_resumed(
    app: QFrame, topic: str, group: str | None, key: str | None, resumed: list[str], *,
    as_json: bool,
) -> None:  # fmt: skip
    if as_json:
        _show(app, topic, group, as_json=True)
        return
    what = "" if key is None else f" key {key}"
    for each in app.admin.groups(topic) if group is None else [group]:
        end = f"resumed; {WITHIN}" if each in resumed else "was not paused"
        say(f"{topic}/{each}:{what} {end}")


@targeted
def holds(
    target: Target,
    topic: Annotated[str | None, argument("TOPIC", "All if left out.", completes="topic")] = None,
    as_json: AsJson = False,
) -> None:
    """Lists what is paused.

    By whom, why and since when, for groups and keys of all topics or of one.
    """
    with target.opened() as app:
        topics = app.store.topics() if topic is None else TopicList()
        say_unknown(topics.unread)
        names = [each.name for each in topics] if topic is None else [topic]
        found = [
            (name, group, hold)
            for name in names
            for group, holds in app.admin.holds(name).items()
            for hold in holds
        ]
    if as_json:
        say_json(
            [
                {"topic": name, "group": group, "key": None, "by": None, "why": None,
                 "since_ms": None, **msgspec.to_builtins(hold)}
                for name, group, hold in found
            ]
        )  # fmt: skip
    elif not found:
        say("nothing is paused")
    else:
        table(
            ("topic", "group", "key", "since", "by", "why"),
            [
                (name, group, hold.key or "(all)", second(hold.since_ms), hold.by, hold.why)
                for name, group, hold in found
            ],
            cut=True,
        )


def _show(app: QFrame, topic: str, group: str | None, *, as_json: bool) -> None:
    for each in app.admin.groups(topic) if group is None else [group]:
        show_tuning(app, topic, each, as_json=as_json, changed=True)
