"""Slips that survived the whole suite: a fence, a bell, a unit or a count that one place lacks."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant, conforms

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
        "Redis rings no bell for a retry that is hastened",
        "stores/redis/scripts/hasten.lua",
        "  ring(slot)\n",
        "",
        conforms("bell", "redis", "hastened"),
    ),
    Mutant(
        "SQL rings no bell for what stood behind a message that is skipped",
        "stores/sql/unblock.py",
        "    heads.advance(transaction, kind, head, now_ms)\n"
        "    notify_messages(transaction, ref, [place.slot])\n",
        "    heads.advance(transaction, kind, head, now_ms)\n",
        conforms("bell", "postgres", "skipped"),
    ),
    Mutant(
        "SQL rings no bell for what is revoked of a line",
        "stores/sql/leases.py",
        "        if rows or taken_back:\n",
        "        if rows:\n",
        conforms("bell", "postgres", "revoked"),
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
        conforms("kinds", "sqlite", "error_before"),
    ),
    Mutant(
        "SQL keeps the tunings of a group that was dropped",
        "stores/sql/groups.py",
        "    controls.forget(transaction, number)\n",
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
]
