"""Words of other systems, and what stands for them here.

People bring their words along: `max_retries=`, `queue=`, `countdown=`. The nearest spelling among
the options is then mostly wrong (`max_retries` looks like `local_retries`), so a door that does
not know a name asks this table first, and takes only a slip of the keyboard for a spelling.
`docs/coming-from.md` shows the table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Final, Literal, NamedTuple

Door = Literal["consumer", "pull", "publish", "topic", "app", "schedule", "worker", "spark"]

DOORS: Final[dict[Door, str]] = {
    "consumer": "@app.consumer",
    "pull": "app.pull",
    "publish": "app.publish",
    "topic": "Topic",
    "app": "QFrame",
    "schedule": "@app.cron",
    "worker": "qframe worker",
    "spark": 'format("qframe")',
}
"""Where options are given, as an error names the place; the first that has a word explains it."""

_LONG: Final = 8  # in a name of so many letters two slips are still slips


class Word(NamedTuple):
    """A row of the table.

    Attributes:
        names: how other systems call it, separated by spaces. Case, and the characters `_ - .`,
            make no difference.
        options: what it is called here, by door.
        note: what differs, as the end of a sentence; empty if nothing does.
    """

    names: str
    options: Mapping[Door, str]
    note: str = ""


def _handled(name: str) -> dict[Door, str]:
    return {"consumer": name, "pull": name}


WORDS: Final = (
    Word("max_retries retries retry retry_limit", _handled("max_attempts"),
         "which counts the first delivery too"),
    Word("attempts max_tries max_receive_count max_deliver max_redeliver_count",
         _handled("max_attempts")),
    Word("dead_letter_queue dead_letter_topic dead_letter_exchange dead_letter_policy "
         "dead_letter_target_arn dlq redrive_policy", _handled("max_attempts"),
         "after which a message is kept as a dead letter: qframe dead list"),
    Word("autoretry_for retry_when", _handled("backoff"),
         "by which any exception but Reject is retried"),
    Word("retry_backoff retry_backoff_max default_retry_delay min_backoff max_backoff retry_delay "
         "retry_interval", _handled("backoff")),
    Word("time_limit soft_time_limit job_timeout hard_time_limit", {"consumer": "timeout"}),
    Word("visibility_timeout lock_duration ack_wait ack_deadline max_poll_interval_ms",
         _handled("lease"), "which is renewed while a handler runs"),
    Word("acks_late task_acks_late reject_on_worker_lost", {"consumer": "at_most_once"},
         "which is the opposite: without it a message is acknowledged after its handler"),
    Word("auto_commit enable_auto_commit", {"consumer": "auto_ack"}),
    Word("concurrency worker_concurrency max_concurrency",
         {"consumer": "threads", "worker": "--processes"}),
    Word("max_jobs max_workers", {"consumer": "threads"}),
    Word("workers num_workers", {"worker": "--processes"}),
    Word("prefetch prefetch_count prefetch_multiplier worker_prefetch_multiplier max_poll_records "
         "max_number_of_messages in_flight", _handled("max_in_flight")),
    Word("auto_offset_reset initial_position starting_position",
         {**_handled("start"), "spark": "startingOffsets"}),
    Word("rate limiter throttle", {"consumer": "rate_limit"}),
    Word("batch_size max_batch_size", {"consumer": "batch", "app": "publish_batch"}),
    Word("on_failure failure_callback", _handled("on_dead")),
    Word("filter_policy message_selector", _handled("tags")),
    Word("queue queue_name queues queue_url routing_key subscribe",
         {**_handled("topic"), "publish": "topic", "schedule": "topic", "worker": "--topic",
          "spark": "topic"}),
    Word("consumer_group group_id group_name subscription kafka.group.id",
         {**_handled("group"), "worker": "--group", "spark": "group"}),
    Word("wait_time_seconds timeout_ms poll_timeout", {"pull": "timeout"}),
    Word("countdown delay_seconds defer_by deliver_after", {"publish": "delay"}),
    Word("eta run_at send_at deliver_at enqueue_at defer_until scheduled_at", {"publish": "at"}),
    Word("task_id job_id jid message_id message_deduplication_id deduplication_id idempotency_key",
         {"publish": "id"}),
    Word("partition_key message_group_id ordering_key", {"publish": "key", "schedule": "key"}),
    Word("partition", {"publish": "slot_basis", "topic": "slots"}),
    Word("message_attributes attributes properties", {"publish": "headers", "schedule": "headers"}),
    Word("labels", {**_handled("tags"), "publish": "tags", "schedule": "tags"}),
    Word("args kwargs payload data value message_body", {"publish": "body", "schedule": "body"}),
    Word("partitions num_partitions partition_count shards", {"topic": "slots", "spark": "slots"}),
    Word("retention retention_ms retention_period message_retention_period", {"topic": "retain"}),
    Word("maxlen max_queue_size", {"topic": "max_length"}),
    Word("fifo fifo_queue queue_type", {"topic": "kind"}, 'of which "ordered" is the strictest'),
    Word("broker broker_url brokers redis_url url bootstrap_servers kafka.bootstrap.servers",
         {"app": "store", "worker": "--store", "spark": "store"}),
    Word("key_prefix queue_prefix prefix vhost",
         {"app": "namespace", "worker": "--namespace", "spark": "namespace"}),
    Word("session_timeout_ms", {"app": "session_timeout"}),
    Word("shutdown_timeout graceful_timeout soft_shutdown_timeout", {"app": "grace"}),
    Word("max_message_size max_message_bytes max_request_size",
         {"app": "max_body", "spark": "maxBody"}),
    Word("timezone", {"schedule": "tz"}),
    Word("misfire_grace_time", {"schedule": "window"}),
    Word("coalesce", {"schedule": "catch_up"}),
    Word("max_instances", {"schedule": "overlap"}),
    Word("max_offsets_per_trigger", {"spark": "maxMessagesPerTrigger"}),
)  # fmt: skip


def remedy_for(name: str, known: Collection[str], door: Door | None = None) -> str:
    """What an error says to an unknown name: the name that was probably meant, and all there are.

    Args:
        name: the name that was given.
        known: the names that could have been given.
        door: where it was given; None for none of these doors.
    """
    there_are = f"there are: {', '.join(known) or 'none'}"
    meant = _translated(name, door) if door is not None else ""
    if not meant and (near := near_name(name, known)) is not None:
        meant = repr(near)
    return f"did you mean {meant}? {there_are}" if meant else there_are


def _translated(name: str, door: Door) -> str:
    """Another system's name as it is here, at this door or else at the one that has it."""
    word = word_of(name)
    if word is None or (door == "spark" and door not in word.options):  # it is read apart
        return ""
    place = door if door in word.options else next(iter(word.options))
    of_place = "" if place == door else f" of {DOORS[place]}"
    note = f", {word.note}" if word.note else ""
    return f"{word.options[place]!r}{of_place}{note}"


def word_of(name: str) -> Word | None:
    """The row that has this name; None if no other system is known to use it."""
    return _rows().get(_plain(name))


def near_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant by one with a slip or two; None if there is none."""
    plain = _plain(name)
    most = 2 if len(plain) >= _LONG else 1
    by_slips = {each: _slips(plain, _plain(each)) for each in known}
    near = min(by_slips, key=by_slips.__getitem__, default=None)
    return near if near is not None and by_slips[near] <= most else None


@cache
def _rows() -> dict[str, Word]:
    return {_plain(name): word for word in WORDS for name in word.names.split()}


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(".", "")


def _slips(one: str, other: str) -> int:
    """How many letters must be changed, added, left out, or swapped with the next one."""
    rows = [list(range(len(other) + 1))]
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            fewest = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                fewest = min(fewest, rows[-2][j - 2] + 1)
            row.append(fewest)
        rows.append(row)
    return rows[-1][-1]
