"""A message: where it stands for each group and why, what happened to it, its body and headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from qframe.admin.explain.cause import Explanation
from qframe.codec import tags_of
from qframe.stores.records import Record
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
        is_ahead: whether it is yet to come.
    """

    at_ms: int
    group: str
    text: str
    is_ahead: bool = False


def facts(visit: Visit) -> dict[str, Any]:
    """A message, by its id and, if they are known, its topic and its key, which is an index."""
    id_ = visit.part("id")
    found = explained(visit, id_)
    records = [each.record for each in found if each.record is not None]
    is_absent = all(each.state == "absent" for each in found)
    now_ms = visit.desk.app.store.now_ms()
    return {
        "title": id_, "id": id_, "found": found, "now_ms": now_ms,
        "is_absent": is_absent, "live": not is_absent and not any(each.looked for each in found),
        "steps": timeline(found, now_ms), "about": records[0] if records else None,
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
        record = each.record
        if record is None:
            continue
        group = record.group or ""
        steps.add(Step(record.published_at_ms, "", "published"))
        if record.held_since_ms and record.state == "doing":
            steps.add(Step(record.held_since_ms, group, f"attempt {record.attempts} began"))
        if record.lease_until_ms and record.state == "doing":
            steps.add(Step(record.lease_until_ms, group, "its lease ends unless it is renewed"))
        if record.died_at_ms:
            steps.add(Step(record.died_at_ms, group, f"died after attempt {record.attempts}"))
        elif record.due_ms and record.state == "waiting":
            text = "due again" if record.attempts else "due"
            steps.add(Step(record.due_ms, group, text))
    return [step._replace(is_ahead=step.at_ms > now_ms) for step in sorted(steps)]
