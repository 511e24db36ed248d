"""A message: where it stands for each group and why, what happened to it, its body and headers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from qframe.admin.explain.cause import Explanation
from qframe.admin.explain.words import ended
from qframe.codec import tags_of
from qframe.outcomes import Verdict
from qframe.stores.records import HistoryEntry, Record
from qframe.web.bodies import shown_body, shown_headers
from qframe.web.desk import Visit

_LOOK: Final = 5000
_OURS: Final = "qf-"


class Step(NamedTuple):
    """Something that happened to a message, or will.

    Attributes:
        at_ms: when.
        group: to which group's; empty for all.
        text: what.
        error: by what error an attempt has ended, and where in the code; empty for none.
        is_ahead: whether it is yet to come.
    """

    at_ms: int
    group: str
    text: str
    error: str = ""
    is_ahead: bool = False


def facts(visit: Visit) -> dict[str, Any]:
    """A message, by its id and, if they are known, its topic and its key, which is an index."""
    id_ = visit.part("id")
    found = explained(visit, id_)
    records = [each.record for each in found if each.record is not None]
    is_absent = not any(each.is_found for each in found)
    store = visit.desk.app.store
    now_ms = store.now_ms(store.topic(found[0].topic) if found else None)
    return {
        "title": id_, "id": id_, "found": found, "now_ms": now_ms,
        "is_absent": is_absent, "live": not is_absent and not any(each.looked for each in found),
        "steps": timeline(found, now_ms), "unkept": [
            each.topic for each in found
            if each.history is None and each.record is not None and each.record.attempts
        ], "about": records[0] if records else None,
        "body": body_of(visit, records), "headers": headers_of(visit, records),
        "tags": tags_of(records[0].headers) if records else (),
    }  # fmt: skip


def explained(visit: Visit, message_id: str) -> list[Explanation]:
    """Where a message is; the address may name its topic and key."""
    key = visit.request.query_params.get("key")
    return visit.admin.explain(visit.asked("topic"), message_id, key=key, look=_LOOK)


def body_of(visit: Visit, records: Sequence[Record]) -> Any:
    """The body for people; None where there is none, or none to be seen."""
    if not visit.may("body") or not records:
        return None
    return shown_body(records[0], visit.desk.redact)


def headers_of(visit: Visit, records: Sequence[Record]) -> list[tuple[str, str]]:
    """The headers that the user has given."""
    if not visit.may("body") or not records:
        return []
    shown = shown_headers(records[0].headers, visit.desk.redact)
    return [(name, value) for name, value in shown if not name.startswith(_OURS)]


def timeline(found: Sequence[Explanation], now_ms: int) -> list[Step]:
    """The known steps of a message's life, the first one in front."""
    steps: set[Step] = set()
    for each in found:
        steps |= {_end(entry) for entry in each.history or ()}
        ends = {entry.verdict for entry in (each.history or ())[-1:]}
        if each.record is not None:
            steps |= set(_steps(each.record, tells_death=Verdict.DEAD not in ends))
    return [step._replace(is_ahead=step.at_ms > now_ms) for step in sorted(steps)]


def _end(entry: HistoryEntry) -> Step:
    """The end of an attempt, which the topic's history has kept."""
    place = f" ({entry.place})" if entry.place else ""
    return Step(entry.ended_ms, entry.group, ended(entry), f"{entry.error or ''}{place}".strip())


def _steps(record: Record, *, tells_death: bool) -> Iterator[Step]:
    """The steps that a message tells of itself as it stands."""
    group = record.group or ""
    yield Step(record.published_at_ms, "", "published")
    if record.held_since_ms and record.state == "doing":
        yield Step(record.held_since_ms, group, f"attempt {record.attempts} began")
    if record.lease_until_ms and record.state == "doing":
        yield Step(record.lease_until_ms, group, "its lease ends unless it is renewed")
    if record.died_at_ms and tells_death:
        yield Step(record.died_at_ms, group, f"died after attempt {record.attempts}")
    if record.due_ms and record.state == "waiting":
        yield Step(record.due_ms, group, "due again" if record.attempts else "due")
