"""`qframe groups drop`: forgets a group and all of its messages."""

from __future__ import annotations

from typing import Annotated

from qframe.admin.totals import summed
from qframe.cli.asking import ask
from qframe.cli.flags import By, GroupName, TopicName, Yes
from qframe.cli.output import counted, say
from qframe.cli.target import Target, coordinated
from qframe.verbs.parameters import option


@coordinated
def drop_group(
    target: Target,
    topic: TopicName,
    group: GroupName,
    yes: Yes = False,
    force: Annotated[
        bool, option("--force", help="Drop it even if workers of the group are alive.")
    ] = False,
    by: By = None,
) -> None:
    """Drops a group with its messages; asks first.

    Other groups keep theirs. It is refused while workers of the group are alive: they would create
    it again, and start where a new group starts.
    """
    with target.acting(by) as (_, admin):
        left = summed(group, admin.stats(topic, group))
        if not yes:
            ask(
                f"Drop {topic}/{group} with {counted(left.lag, 'unsettled message')} and "
                f"{counted(left.dead, 'dead letter')} for good?"
            )
        admin.drop_group(topic, group, force=force)
    say(f"group {group} of topic {topic} dropped")
