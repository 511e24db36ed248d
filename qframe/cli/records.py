"""Messages where they stand, as rows, as sentences and as JSON."""

from __future__ import annotations

from typing import Any

from qframe.cli.bodies import CUT_AT, body_as_json, body_as_text
from qframe.cli.times import length
from qframe.clock import moment
from qframe.codec import own_headers, tags_of
from qframe.stores.records import Record


def as_json(record: Record) -> dict[str, Any]:
    """A record as programs read it; a body that is not JSON is given in base64."""
    shown: dict[str, Any] = {
        "topic": record.topic, "group": record.group, "slot": record.slot, "state": record.state,
        "id": record.id, "key": record.key, "subject": record.subject, "seq": record.seq,
        "headers": own_headers(record.headers), "tags": list(tags_of(record.headers)),
        "published_at": moment(record.published_at_ms), "due_at": moment(record.shown_due_ms),
        "lease_until": moment(record.lease_until_ms), "died_at": moment(record.died_at_ms),
        "held_since": moment(record.held_since_ms),
        "attempts": record.attempts, "lost": record.lost, "priority": record.priority,
        "error": record.error, "traceback": record.traceback,
    }  # fmt: skip
    return {**shown, **body_as_json(record.body, record.headers)}


def body_text(record: Record, limit: int | None = CUT_AT) -> str:
    """The body as JSON text, or as Python writes bytes; cut where it is too long for a row."""
    return body_as_text(record.body, record.headers, limit)


def second(ms: int | None) -> str | None:
    """A moment in UTC, to the second, for tables."""
    text = moment(ms)
    return text if text is None or "since" in text else f"{text[:10]} {text[11:19]}Z"


def why(record: Record, now_ms: int) -> str:
    """Why a message is where it is, in a sentence."""
    if record.group is None and record.state != "held":
        return "no group has subscribed yet; the first that does gets it"
    attempts = f"{record.attempts} attempt{'' if record.attempts == 1 else 's'}"
    sentences = {
        "todo": "it is due and waits for a worker",
        "held": "it waits for the messages before it in its key's sequence",
        "settled": "the group has settled it",
        "dead": f"it is dead after {attempts} and waits for a decision: retry or drop",
    }
    if record.state == "waiting":
        if record.due_ms is None or record.due_ms <= now_ms:
            return "it waits behind the messages before it in its subject"
        until = f"until {moment(record.due_ms)} (in {length((record.due_ms - now_ms) / 1000)})"
        if record.attempts:
            return f"it waits for a retry after {attempts}, {until}"
        return f"it is not due {until}"
    if record.state == "doing":
        if record.lease_until_ms is not None and record.lease_until_ms <= now_ms:
            return "its lease has expired; the next pull delivers it again"
        return f"it was handed out to a worker, attempt {record.attempts}, which renews its lease"
    if record.state == "todo" and record.attempts:
        return f"it is due again after {attempts} and waits for a worker"
    return sentences.get(record.state, record.state)
