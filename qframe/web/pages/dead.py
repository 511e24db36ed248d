"""Dead letters: by cause, with their trend, then one by one."""

from __future__ import annotations

from typing import Any, Final

from qframe.admin.causes import HOUR_MS, cause_of
from qframe.clock import moment
from qframe.errors import UnknownGroup
from qframe.web.desk import Visit
from qframe.web.times import moment_of

SHOWN: Final = 50
GROUPED: Final = 500
MOST_GROUPED: Final = 5000
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * HOUR_MS


def facts(visit: Visit) -> dict[str, Any]:
    """A group's dead letters, with `since=` those that died from then on.

    With `cause=`, of the 500 that a page looks at only those that died of it.

    Raises:
        UnknownTopic, UnknownGroup: if there is none.
        BadOption: if `after` is no place of a dead letter, or `since` no moment.
    """
    topic, group = visit.part("topic"), visit.part("group")
    admin = visit.admin
    totals = next((each for each in admin.topic(topic).groups if each.group == group), None)
    if totals is None:
        raise UnknownGroup(topic, group, admin.groups(topic))
    asked, store = visit.asked("since"), visit.desk.app.store
    now_ms = store.now_ms(store.topic(topic))
    since = None if asked is None else moment_of("since", asked)
    grouped = MOST_GROUPED if visit.asked("all") else GROUPED
    causes = admin.dead_causes(topic, group, grouped, since=since)
    cause = visit.asked("cause")
    most = GROUPED if cause else SHOWN + 1
    page = admin.dead(topic, group, most, after=visit.asked("after"), since=since)
    fitting = [each for each in page if cause in (None, cause_of(each).name)]
    listed = fitting[:SHOWN]
    is_more = len(fitting) > SHOWN or (cause is not None and len(page) == most)
    last = listed[-1] if len(fitting) > SHOWN else page[-1] if page else None
    chosen = next((each for each in causes.causes if each.name == cause), None)
    return {
        "title": f"dead letters of {topic}/{group}", "topic": topic, "group": group,
        "dead": totals.dead, "causes": causes, "cause": cause, "chosen": chosen,
        "listed": listed, "now_ms": now_ms, "looked": len(page), "all": visit.asked("all"),
        "since": asked, "moments": _moments(visit, topic, group, now_ms),
        "next": str(last.dead_place) if is_more and last is not None else None,
        "names": {each.id: cause_of(each).name for each in listed},
    }  # fmt: skip


def _moments(visit: Visit, topic: str, group: str, now_ms: int) -> list[tuple[str, str | None]]:
    """Moments from which on one may want to look: each with its name."""
    workers = visit.desk.sampler.look(topic).workers or ()
    starts = sorted(each.since_ms for each in workers if f"{topic}/{group}" in each.consumers)
    found: list[tuple[str, int]] = []
    if starts:
        found.append(("the oldest worker started", starts[0]))
    if starts and starts[-1] - starts[0] > _MINUTE_MS:
        found.append(("the newest worker started", starts[-1]))
    now_ms -= now_ms % _MINUTE_MS
    found += [("an hour ago", now_ms - HOUR_MS), ("midnight UTC", now_ms - now_ms % _DAY_MS)]
    return [(name, moment(at_ms)) for name, at_ms in found]
