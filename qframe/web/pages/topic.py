"""A topic: its groups, what is kept of it, and how it was declared."""

from __future__ import annotations

from typing import Any

from qframe.errors import UnknownTopic
from qframe.web.desk import Visit
from qframe.web.rendering import charts_of


def facts(visit: Visit) -> dict[str, Any]:
    """The topic as it was last looked at.

    Raises:
        UnknownTopic: if there is none of this name.
    """
    name = visit.part("topic")
    sampler = visit.desk.sampler
    look = sampler.look(name)
    found = next((each for each in look.topics if each.name == name), None)
    if found is None:
        if look.error is not None:
            raise look.error
        visit.admin.topic(name)  # which tells if this version of qframe cannot read it
        raise UnknownTopic(name, [each.name for each in look.declared])
    groups = [each for each in look.groups if each.topic.name == name]
    return {
        "title": name, "topic": found, "declared": visit.desk.app.store.topic(name),
        "groups": groups, "damaged": [(name, group) for group in found.damaged], "look": look,
        "charts": {
            each.name: charts_of(sampler.points(*each.name), look.at_ms) for each in groups
        },
    }  # fmt: skip
