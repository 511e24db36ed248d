"""Slips that survived the whole suite: a fence, a bell, a unit or a count that one place lacks."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant, conforms

GATEWAY: Final = "tests/integration/gateway/"
CHECKERS: Final = f"{UNIT}test_checkers.py -k 'redis and not cluster and not sentinel'"

SLIPS: Final = [
    # Fences and limits.
    Mutant(
        "Redis ends what is handed out again after a seek under its old receipt",
        "stores/redis/scripts/end_stream.lua",
        " or cursor[4] ~= receipt or receipt == '' then",
        " or receipt == '' then",
        conforms("groups", "redis", "after_a_seek"),
    ),
    Mutant(
        "SQL acknowledges what has an old receipt beside what has the one in force",
        "stores/sql/stream_settle.py",
        "{one.receipt for one in deliveries} != {cursor.receipt}",
        "cursor.receipt not in {one.receipt for one in deliveries}",
        conforms("groups", "sqlite", "acknowledged_together"),
    ),
    Mutant(
        "Redis hands out of a line as many as were asked for beside what comes again",
        "stores/redis/scripts/pull_stream.lua",
        "math.min(start + limit - handed, last)",
        "math.min(start + limit, last)",
        conforms("pull", "redis", "than_was_asked"),
    ),
    Mutant(
        "a sweep of a database waits for who publishes",
        "stores/sql/sweep.py",
        ".with_for_update(skip_locked=True)",
        ".with_for_update()",
        "tests/integration/stores/sql/test_commit_order.py -k waits_for_nobody",
    ),
    Mutant(
        "a sweep of a database removes more of a log than it was asked to",
        "stores/sql/sweep.py",
        "(at, floor, limit - removed, then_ms)",
        "(at, floor, limit, then_ms)",
        conforms("topics", "sqlite", "no_more_rows"),
    ),
    # Bells.
    Mutant(
        "Redis rings no bell for what an operator has changed",
        "stores/redis/scripts/rewrite.lua",
        "if has_changed then\n  ring(slot)\nend\n",
        "",
        conforms("bell", "redis", "hastened"),
    ),
    Mutant(
        "SQL rings no bell for what an operator has changed",
        "stores/sql/edits.py",
        "        if moved is Moved.DONE and edit.becomes is not Becomes.DROPPED for cursor",
        "        if False for cursor",
        conforms("bell", "postgres", "skipped"),
        "test-all",
    ),
    Mutant(
        "SQL rings no bell for what is revoked of a line",
        "stores/sql/leases.py",
        "        if rows or taken_back:\n",
        "        if rows:\n",
        conforms("bell", "postgres", "revoked"),
        "test-all",
    ),
    Mutant(
        "Redis rings no bell for a line that may be read again",
        "stores/redis/scripts/parts/places.lua",
        "    has_placed = has_placed or "
        "(behind < group.max_parked and behind - by >= group.max_parked)\n",
        "",
        conforms("keep_order", "redis", "part_of_a_run"),
    ),
    # What is left behind.
    Mutant(
        "SQL keeps the error of a message that was replaced",
        "stores/sql/arrivals.py",
        "tries=0, lost=0, error=None, id=",
        "tries=0, lost=0, id=",
        conforms("kinds", "sqlite", "or_merges"),
    ),
    Mutant(
        "SQL keeps the documents of a group that was dropped",
        "stores/sql/groups.py",
        "    documents.forget(transaction, ref, number, name)\n",
        "",
        UNIT + "test_sql_store.py -k no_row",
    ),
    Mutant(
        "Redis ends a group of a grown topic that was subscribed for ever",
        "stores/redis/scripts/enlist.lua",
        "  elseif before then\n    redis.call('ZREM', slot .. 'expiries', name)\n",
        "",
        conforms("growing", "redis", "last_subscription"),
    ),
    # Counts and units.
    Mutant(
        "Redis keeps the count of what was dropped through a seek",
        "stores/redis/scripts/seek.lua",
        "'acked', 0, 'cancelled', 0)",
        "'acked', 0)",
        conforms("groups", "redis", "after_a_seek"),
    ),
    Mutant(
        "Redis renews the claim of an effect for seconds, not milliseconds",
        "idempotency/scripts/renew.lua",
        "redis.call('PEXPIRE', key, lease)",
        "redis.call('EXPIRE', key, lease)",
        CHECKERS,
    ),
    Mutant(
        "slots that were lost are counted as those that were left",
        "telemetry/meters.py",
        '("lost", "slots_lost")',
        '("lost", "left")',
        UNIT + "test_meters.py",
    ),
    # Rights, receipts and times of the gateway.
    Mutant(
        "a move of SQS brings dead letters back where its client may not publish",
        "web/gateway/sqs/move_verbs.py",
        'if call.may(source.name, "publish"):',
        "if source.name:",
        GATEWAY + "test_sqs_moves.py",
    ),
    Mutant(
        "a gateway that ends leaves its moves behind",
        "web/gateway/gateway.py",
        "        for task in self._beside:\n            task.cancel()\n"
        "        await asyncio.gather(*self._beside, return_exceptions=True)\n",
        "",
        GATEWAY + "test_sqs_moves.py -k gateway_that_ends",
    ),
    Mutant(
        "a client of SQS changes visibility with any right",
        "web/gateway/sqs/message_verbs.py",
        'call, "consume")\n        _check_visibility(',
        'call, "any")\n        _check_visibility(',
        GATEWAY + "test_sqs_queue_verbs.py -k each_operation",
    ),
    Mutant(
        "values of attributes and tags are not escaped in XML",
        "web/gateway/sqs/query_protocol.py",
        'f"<{of}>{_inside(operation, inside)}</{of}></{element}>"',
        'f"<{of}>{inside if isinstance(inside, str) else _inside(operation, inside)}'
        '</{of}></{element}>"',
        UNIT + "test_sqs_protocols.py",
    ),
    Mutant(
        "a caller forgets what it has in hand when the file of tokens is read again",
        "web/gateway/callers.py",
        "before.pop(name, None) or Caller(",
        "Caller(",
        GATEWAY + "test_rights.py -k in_hand",
    ),
    Mutant(
        "a link in a mail is a program of this machine",
        "web/access.py",
        'return site != "same-origin"',
        'return site not in ("same-origin", "none")',
        UNIT + "test_web_access.py",
    ),
    Mutant(
        "replies of another gateway are taken in the order of the request",
        "web/gateway/forwarding.py",
        "            mine.sort(key=lambda place: _IN_ORDER.index(wanted[place].verb))\n",
        "",
        GATEWAY + "test_forwarding.py",
    ),
    Mutant(
        "a delivery is settled after its lease, before the timer has struck",
        "web/gateway/open_group.py",
        "        if opened.until_s <= now_s:\n            self._expire()\n        elif ",
        "        if ",
        UNIT + "test_open_group.py",
    ),
    Mutant(
        "a client that hangs up as its messages come keeps them",
        "web/gateway/open_group.py",
        "if found.done() and not found.cancelled() and found.exception() is None:",
        "if found.done() and found.cancelled():",
        UNIT + "test_open_group.py",
    ),
    # Others that were seen by nobody.
    Mutant(
        "a leader that may have lost its slot publishes all the same",
        "schedules/leader.py",
        "        if self._slots is not None and not self._slots.certain():\n"
        "            return False\n",
        "",
        UNIT + "test_schedule_decision.py",
    ),
    Mutant(
        "ticks behind the first five hundred are never decided",
        "schedules/decision.py",
        "ticks[-1] if len(ticks) == MOST_AT_ONCE else horizon_ms",
        "horizon_ms",
        UNIT + "test_schedule_decision.py",
    ),
    Mutant(
        "a supervisor that stops starts the others",
        "runtime/process/supervisor.py",
        "        if self._proven or self._stopping:\n",
        "        if self._proven:\n",
        UNIT + "test_supervising.py",
    ),
    Mutant(
        "a form is not done where another act had the same fields",
        "web/forms.py",
        "self._sent.setdefault((act, form.identity), _Sent())",
        "self._sent.setdefault(form.identity, _Sent())",
        UNIT + "test_console_parts.py",
    ),
    Mutant(
        "timers that were published since they were counted are changed too",
        "web/timer_acts.py",
        "store.now_ms(store.topic(topic)) if seen_ms is None else seen_ms",
        "store.now_ms(store.topic(topic))",
        UNIT + "test_console_parts.py",
    ),
]
