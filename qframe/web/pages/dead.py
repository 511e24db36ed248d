"""Dead letters: by cause, with their trend, then one by one."""

from __future__ import annotations

from typing import Any, Final

from qframe.admin.causes import cause_of
from qframe.errors import UnknownGroup
from qframe.web.desk import Visit

SHOWN: Final = 50
GROUPED: Final = 500
MOST_GROUPED: Final = 5000


def facts(visit: Visit) -> dict[str, Any]:
    """A group's dead letters; with `cause=`, of those that are listed only those that died of it.

    Raises:
        UnknownTopic, UnknownGroup: if there is none.
        BadOption: if `after` is no place of a dead letter.
    """
    topic, group = visit.part("topic"), visit.part("group")
    admin = visit.admin
    totals = next((each for each in admin.topic(topic).groups if each.group == group), None)
    if totals is None:
        raise UnknownGroup(topic, group, admin.groups(topic))
    grouped = MOST_GROUPED if visit.asked("all") else GROUPED
    causes = admin.dead_causes(topic, group, grouped)
    cause = visit.asked("cause")
    page = admin.dead(topic, group, GROUPED if cause else SHOWN + 1, after=visit.asked("after"))
    listed = page[:SHOWN]
    if cause is not None:
        listed = [each for each in page if cause_of(each).name == cause][:SHOWN]
    chosen = next((each for each in causes.causes if each.name == cause), None)
    return {
        "title": f"dead letters of {topic}/{group}", "topic": topic, "group": group,
        "dead": totals.dead, "causes": causes, "cause": cause, "chosen": chosen,
        "listed": listed, "now_ms": visit.desk.app.store.now_ms(),
        "next": str(listed[-1].dead_place) if cause is None and len(page) > SHOWN else None,
        "names": {each.id: cause_of(each).name for each in listed},
    }  # fmt: skip
