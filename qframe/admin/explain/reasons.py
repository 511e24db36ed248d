"""Says from a record and the circumstances of its group why the message is where it is."""

from __future__ import annotations

from typing import Any

from qframe.admin.explain.cause import Cause
from qframe.admin.explain.circumstances import Circumstances, WorkerWord
from qframe.admin.explain.past import settled_by
from qframe.admin.explain.words import attempts, moment, span, told, until
from qframe.codec import tags_of
from qframe.options.hold import Hold
from qframe.outcomes import Verdict
from qframe.stores.records import HistoryEntry, Record


def causes_of(
    record: Record, around: Circumstances | None, head: Record | None, *, now_ms: int,
    has_groups: bool = True, last: HistoryEntry | None = None,
) -> list[Cause]:  # fmt: skip
    """The causes, in the order in which they have to go.

    Args:
        record: the message as it stands.
        around: the circumstances of its group; None where no group has it yet.
        head: the message before it that holds back its subject, if there is one.
        now_ms: the store's now.
        has_groups: whether any group has subscribed to its topic.
        last: how its last attempt has ended, if that is kept.
    """
    if record.state == "held":
        return [_gap(record)]
    if around is None:
        waits = _not_due(record, None, now_ms)
        return waits if has_groups else [*waits, no_group()]
    if record.state == "dead":
        return [_dead(record)]
    if record.state == "settled":
        return [_settled(record, around, last)]
    if head is not None:
        waits = _open(head, around, now_ms, of=head.id)
        at = waits[0].name == "paused"  # nothing of the key moves until it is resumed
        own = _not_due(record, around, now_ms)
        return [*waits[:at], _behind(record, head, around), *waits[at:], *own]
    return _open(record, around, now_ms)


def _open(record: Record, around: Circumstances, now_ms: int, of: str | None = None) -> list[Cause]:
    """The causes for which the first message of its key, or one without a key, is not settled.

    `of` is its id, where it is not the message that is explained.
    """
    if record.state == "doing":
        return _in_hand(record, around, of)
    blocking = obstacles(record, around)
    waits = _not_due(record, around, now_ms, of) if record.state == "waiting" else []
    return [*waits, *blocking] or [_ready(record, around, of)]


def no_group() -> Cause:
    """No group has subscribed."""
    return Cause("no-group", "no group has subscribed yet; the first that does gets it")


def obstacles(record: Record, around: Circumstances) -> list[Cause]:
    """The causes that keep a group from a message that is due."""
    found = _pauses(record, around)
    is_split = record.slot == around.topic.growth.slot
    if is_split:
        found.append(_growing(around, around.owner_of(record.slot)))
    roster = around.roster
    if roster is None:
        text = "the coordinator cannot be reached, so its workers are not known"
        return [*found, Cause("coordinator-away", text)]
    if not roster.members:
        return [*found, _no_worker(record, around)]
    if is_split:
        return found
    owner = around.owner_of(record.slot)
    if owner is None:
        facts = {"slot": record.slot, "workers": len(roster.members)}
        text = f"slot {record.slot} has no owner, though {_alive(len(roster.members))}"
        return [*found, Cause("no-owner", text, facts)]
    word = around.word_of(owner)
    return found if word is None else [*found, *_of_word(word, around), *_full(record, word)]


def _growing(around: Circumstances, owner: str | None) -> Cause:
    """Its slot is being split: it is handed out again by one of the two that follow."""
    topic, growth = around.topic, around.topic.growth
    if owner is not None:
        why = f"{owner} has handled what it has in hand of it"
    elif growth.until_ms > around.now_ms:
        why = "what is queued in it is copied"
    else:
        again = f"qframe topics resize {topic.name} --slots {growth.target}"
        why = f"a worker of the topic, or {again}, goes on with that"
    text = (
        f"topic {topic.name} grows to {growth.target} slots, and slot {growth.slot} is being "
        f"split: it waits until {why}"
    )
    facts = {"slot": growth.slot, "target": growth.target, "worker": owner}
    return Cause("growing", text, facts)


def _full(record: Record, word: WorkerWord) -> list[Cause]:
    """So much is parked in its slot that the line, in which it stands, is not read."""
    if record.subject is not None or record.slot not in word.report.full:
        return []
    text = f"slot {record.slot} is full: max_parked messages wait there behind keys that are parked"
    return [Cause("slot-full", text, {"slot": record.slot, "worker": word.worker})]


def _no_worker(record: Record, around: Circumstances) -> Cause:
    """Nobody serves the group; a stream may keep the message for it alone."""
    text = f"no worker of {around.group} is alive"
    if around.tuning.reader is not None:
        text = f"{around.group} follows a Spark query, which has not read it"
    if around.retain_ms is None or around.now_ms - record.published_at_ms <= around.retain_ms:
        return Cause("no-worker", text)
    text += (
        f", and the stream keeps it for longer than {span(around.retain_ms)} because of that; if "
        f"nobody needs the group: qframe groups drop {record.topic} {around.group}"
    )
    return Cause("no-worker", text, {"retain_s": around.retain_ms / 1000})


def _pauses(record: Record, around: Circumstances) -> list[Cause]:
    """The pause of the group, and that of the key."""
    tuning = around.tuning
    if not tuning.paused:
        return _pause_of_key(record, around)
    of_group = _paused(f"group {around.group}", "group", tuning.hold or Hold())
    return [of_group, *_pause_of_key(record, around)]


def _pause_of_key(record: Record, around: Circumstances) -> list[Cause]:
    """The pause of the key: its first messages lie in a worker's hand."""
    hold = None if record.key is None else around.tuning.keys.get(record.key)
    return [] if hold is None else [_paused(f"key {record.key}", "key", hold)]


def _paused(what: str, scope: str, hold: Hold) -> Cause:
    by = f" by {hold.by}" if hold.by is not None else ""
    since = f" since {moment(hold.since_ms)}" if hold.since_ms is not None else ""
    why = f": {hold.why}" if hold.why is not None else ""
    facts = {
        "scope": scope, "key": hold.key, "by": hold.by, "why": hold.why, "since_ms": hold.since_ms
    }  # fmt: skip
    return Cause("paused", f"{what} is paused{by}{since}{why}", facts)


def _of_word(word: WorkerWord, around: Circumstances) -> list[Cause]:
    """The causes that a worker has told of itself."""
    report, found = word.report, []
    facts: dict[str, Any] = {"worker": word.worker, "reported_ms": word.at_ms}
    if report.pause_ms is not None:
        until_ms = word.at_ms + report.pause_ms
        if until_ms > around.now_ms:
            text = f"the circuit breaker of {word.worker} is open until {moment(until_ms)}"
        else:
            text = f"the circuit breaker of {word.worker} is open and lets one message through"
        text = told(f"{text}, after {report.failures} failures in a row", word.at_ms, around.now_ms)
        facts |= {"until_ms": until_ms, "failures": report.failures}
        found.append(Cause("breaker-open", text, facts))
    if report.limited:
        text = f"the rate limit of {report.rate} is reached in {word.worker}"
        facts = {"worker": word.worker, "reported_ms": word.at_ms, "rate": report.rate}
        found.append(Cause("rate-limited", told(text, word.at_ms, around.now_ms), facts))
    return found


def _not_due(
    record: Record, around: Circumstances | None, now_ms: int, of: str | None = None
) -> list[Cause]:
    """It waits for a time, if that has not come."""
    if record.due_ms is None or record.due_ms <= now_ms:
        return []
    facts: dict[str, Any] = {"until_ms": record.due_ms}
    when = until(record.due_ms, now_ms)
    if not record.attempts:
        return [Cause("not-due", f"{of or 'it'} is not due {when}", facts, of)]
    most = None if around is None else around.max_attempts
    out_of = f" of {most}" if most is not None else ""
    text = f"{of or 'it'} waits for a retry after {attempts(record.attempts)}{out_of}, {when}"
    if record.error:
        text += f"; the last one failed with {record.error}"
    facts |= {"attempts": record.attempts, "max_attempts": most, "error": record.error}
    return [Cause("retry", text, facts, of)]


def _in_hand(record: Record, around: Circumstances, of: str | None) -> list[Cause]:
    """It was handed out; unless its worker lives and its lease lasts, what else it waits for."""
    worker = around.owner_of(record.slot)
    facts: dict[str, Any] = {
        "worker": worker, "since_ms": record.held_since_ms, "attempt": record.attempts or 1,
        "max_attempts": around.max_attempts, "lease_until_ms": record.lease_until_ms,
    }  # fmt: skip
    ended_ms = record.lease_until_ms
    if ended_ms is not None and ended_ms <= around.now_ms:
        text = (
            f"{of or 'it'} was handed out, attempt {facts['attempt']}, and its lease has expired "
            f"{span(around.now_ms - ended_ms)} ago; the next pull delivers it again"
        )
        return [Cause("lease-over", text, facts, of), *obstacles(record, around)]
    text = f"{of or 'it'} was handed out{_to(worker, around)}"
    if record.held_since_ms is not None:
        text += f" at {moment(record.held_since_ms)}"
    text += f", attempt {facts['attempt']}"
    if worker is None:
        return [Cause("running", text, facts, of), *obstacles(record, around)]
    paused = _pause_of_key(record, around)
    told_ms = around.handled_ms(record.id, worker, record.held_since_ms)
    if told_ms is not None:
        text += f"; its handler has begun, as {worker} said {span(around.now_ms - told_ms)} ago"
    elif paused:
        text += "; it lies there, unless its handler began before the pause"
    return [*paused, Cause("running", text, facts, of)]


def _to(worker: str | None, around: Circumstances) -> str:
    if worker is None:
        return "" if around.roster is None else " to a worker that is gone"
    return f" to {worker}"


def _behind(record: Record, head: Record, around: Circumstances) -> Cause:
    facts: dict[str, Any] = {"before": head.id, "before_state": head.state, "key": head.key}
    how = {"waiting": "waits", "todo": "is due"}.get(head.state, head.state)
    if head.state == "waiting" and head.attempts:
        how = f"is retried at {moment(head.due_ms)}"
    if head.state == "doing":
        worker = around.owner_of(record.slot)
        how = f"was handed out{_to(worker, around)}"
        facts |= {
            "worker": worker, "since_ms": head.held_since_ms, "attempt": head.attempts or 1,
        }  # fmt: skip
    return Cause("behind", f"it waits behind {head.id} of the same key, which {how}", facts)


def _gap(record: Record) -> Cause:
    why = (record.error or "waits for a sequence number").removeprefix("waits for ")
    text = (
        f"it is held in a gap of its key's sequence: it waits for {why}, at the longest until "
        f"{moment(record.due_ms)}"
    )
    return Cause("sequence-gap", text, {"until_ms": record.due_ms, "key": record.key})


def _dead(record: Record) -> Cause:
    error = record.error or "an unknown error"
    since = f"since {moment(record.died_at_ms)}"
    text = f"it is dead after {attempts(record.attempts)}, {since}: {error}; retry or drop it"
    facts = {
        "since_ms": record.died_at_ms, "attempts": record.attempts, "error": record.error
    }  # fmt: skip
    return Cause("dead", text, facts)


def _settled(record: Record, around: Circumstances, last: HistoryEntry | None) -> Cause:
    tags = tags_of(record.headers)
    for word in around.words:
        wanted = word.report.wanted
        if wanted is not None and not wanted.matches(record.headers):
            has = f"its tags are {', '.join(tags)}" if tags else "it has no tag"
            text = (
                f"it was acknowledged unhandled: {has}, and the consumer wants {wanted!r}, as "
                f"{word.worker} said {span(around.now_ms - word.at_ms)} ago"
            )
            facts = {
                "tags": list(tags), "wanted": sorted(wanted.tags), "worker": word.worker,
                "reported_ms": word.at_ms,
            }  # fmt: skip
            return Cause("filtered", text, facts)
    if last is not None and last.verdict == Verdict.ACK:
        return settled_by(last)
    text = "the group has settled it; when and by whom, the store does not keep"
    return Cause("settled", text, {"at_ms": None, "worker": None, "attempt": None})


def _ready(record: Record, around: Circumstances, of: str | None) -> Cause:
    worker = around.owner_of(record.slot)
    again = f" again after {attempts(record.attempts)}" if record.attempts else ""
    text = f"{of or 'it'} is due{again}, and {worker} takes it when its turn comes"
    facts = {"worker": worker, "attempts": record.attempts, "due_ms": record.due_ms}
    return Cause("ready", text, facts, of)


def _alive(workers: int) -> str:
    return "a worker is alive" if workers == 1 else f"{workers} workers are alive"
