"""A key: what stands in its line, what blocks it, and what can be done about that."""

from __future__ import annotations

from typing import Any, Final

from qframe.admin.explain.explainer import BEHIND
from qframe.errors import BadOption, UnknownGroup
from qframe.topic import Kind
from qframe.web.desk import Visit

MOST: Final = 50
_LOOK: Final = 2000


def facts(visit: Visit) -> dict[str, Any]:
    """The line of a key for a group, the first message first.

    Raises:
        BadOption: if no key is given.
        UnknownTopic, UnknownGroup: if there is none.
    """
    topic, group = visit.part("topic"), visit.part("group")
    key = visit.request.query_params.get("key")
    if not key:
        raise BadOption("key", key, "none was given", "choose a key on the page of its group")
    admin = visit.admin
    names = admin.groups(topic)
    if group not in names:
        raise UnknownGroup(topic, group, names)
    found = [
        each for each in admin.explain(topic, key=key, look=_LOOK) if each.group in (group, None)
    ]
    line = [each for each in found if each.state in ("waiting", "todo", "doing", "held")]
    line.sort(key=lambda each: (each.offset is None, each.offset or 0))
    kind, store = admin.topic(topic).kind, visit.desk.app.store
    hold = admin.tuned(topic, group).keys.get(key)
    return {
        "title": f"key {key}", "topic": topic, "group": group, "key": key, "hold": hold,
        "line": line[:MOST], "left_out": max(0, len(line) - MOST),
        "is_cut": len(line) > BEHIND,
        "dead": [each for each in found if each.state == "dead"][:MOST],
        "unread": next((each for each in found if not each.is_found and each.place), None),
        "first": line[0] if line else None, "now_ms": store.now_ms(store.topic(topic)),
        "kind": kind, "live": kind != Kind.STREAM,  # where a key is no index, it is searched for
    }  # fmt: skip
