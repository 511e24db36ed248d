"""`qframe keys skip` and `qframe keys unblock`: a key whose first message holds up the others."""

from __future__ import annotations

from typing import Annotated

from qframe.cli.asking import ask
from qframe.cli.flags import AsJson, By, GroupName, KeyName, NeverAsked, TopicName, Yes
from qframe.cli.output import counted, say, say_json
from qframe.cli.records import as_json as record_as_json
from qframe.cli.target import Target, targeted
from qframe.verbs.parameters import option


@targeted
def skip(
    target: Target,
    topic: TopicName,
    group: GroupName,
    key: KeyName,
    message_id: Annotated[
        str | None,
        option("--id", metavar="ID", help="Only if it is this message that blocks the key."),
    ] = None,
    why: Annotated[
        str | None, option(metavar="TEXT", help="A reason, kept with the dead letter.")
    ] = None,
    force: Annotated[
        bool, option("--force", help="Skip it even while a worker has it in hand.")
    ] = False,
    yes: Yes = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Puts the message that blocks a key among the dead; asks first.

    The key's next message follows. The dead letter says who skipped it, and why.
    """
    with target.acting(by) as (_, admin):
        if not yes:
            message_id = message_id or admin.first_of_key(topic, group, key).id
            ask(f"Put {message_id}, the first message of {key} in {topic}/{group}, among the dead?")
        record = admin.skip(topic, group, key, message_id=message_id, why=why, force=force)
    if as_json:
        say_json(record_as_json(record))
    else:
        say(f"message {record.id} of {key} is dead; the next one of its key follows")


@targeted
def unblock(
    target: Target,
    topic: TopicName,
    group: GroupName,
    key: KeyName,
    yes: NeverAsked = False,  # noqa: ARG001
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Makes a key's waiting retry due now."""
    with target.acting(by) as (_, admin):
        done = admin.unblock(topic, group, key)
    if as_json:
        say_json({"topic": topic, "group": group, "key": key, "count": done})
    elif done:
        say(f"{counted(done, 'message')} of {key} due now")
    else:
        say(f"nothing of {key} waits: its first message is due, or in a worker's hands")
