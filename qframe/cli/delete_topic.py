"""`qframe topics delete`: forgets a topic with all that it holds."""

from __future__ import annotations

import sys
from typing import Annotated

from click.exceptions import Exit

from qframe.cli.flags import By, TopicName
from qframe.cli.output import counted, say
from qframe.cli.target import Target, coordinated
from qframe.verbs.parameters import option


@coordinated
def delete_topic(
    target: Target,
    topic: TopicName,
    confirm: Annotated[
        str | None,
        option("--confirm", metavar="TOPIC", help="The topic's name again; do not ask."),
    ] = None,
    force: Annotated[
        bool, option("--force", help="Delete it even if workers of it are alive.")
    ] = False,
    by: By = None,
) -> None:
    """Deletes a topic with all that it holds; asks for its name.

    It works in steps. If it is stopped, call it again: it goes on where it was.
    """
    with target.acting(by) as (_, admin):
        totals = admin.topic(topic)
        if confirm is None:
            dead = sum(each.dead for each in totals.groups)
            left = sum(each.lag for each in totals.groups)
            groups = admin.groups(topic)
            sys.stderr.write(
                f"Delete topic {topic} for good, with {counted(len(groups), 'group')}, "
                f"{counted(left, 'unsettled message')} and {counted(dead, 'dead letter')}? "
                "Type its name: "
            )
            sys.stderr.flush()
            confirm = sys.stdin.readline().strip()
            if confirm != topic:
                sys.stderr.write("nothing deleted\n")
                raise Exit(1)
        try:
            admin.delete_topic(topic, confirm=confirm, force=force)
        except KeyboardInterrupt:
            sys.stderr.write("stopped on the way: call it again to go on\n")
            raise Exit(130) from None
    say(f"topic {topic} deleted")
