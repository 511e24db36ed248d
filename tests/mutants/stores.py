"""Faults in stores, whose tests need no simulator."""

from __future__ import annotations

from typing import Final

from mutants.mutant import RELAY, UNIT, Mutant, conforms, inside

STORES: Final = [
    Mutant(
        "a head that is written down again is counted where it stood too",
        "stores/redis/scripts/restore.lua",
        "    take_out(group, subject, old)\n",
        "",
        conforms("copying", "redis", "written_down"),
    ),
    Mutant(
        "a group that kept order is copied without what it has in hand",
        "stores/redis/scripts/restore.lua",
        "'max_parked', 0, 'running', running)",
        "'max_parked', 0, 'running', 0)",
        conforms("copying", "redis", "no_more"),
    ),
    Mutant(
        "times of joining go back in a copied log",
        "stores/redis/scripts/restore.lua",
        "    joined = math.max(joined, tonumber(fields_of(last).t))\n",
        "",
        conforms("copying", "redis", "times_of_joining"),
    ),
    Mutant(
        "what has come over of a log is left out with what has not",
        "stores/redis/scripts/restore.lua",
        "if first + size <= head then",
        "if first < head then",
        conforms("copying", "redis", "times_of_joining"),
    ),
    Mutant(
        "a mark is taken back of another row of the same number",
        "outbox/rows.py",
        "yield and_(outbox.number.in_(some), outbox.id.in_([ids[each] for each in some]))",
        "yield outbox.number.in_(some)",
        f"{RELAY} -k given_before",
    ),
    Mutant(
        "SQL settles under any epoch",
        "stores/sql/settle.py",
        "        elif one.epoch == cursor.epoch != NO_EPOCH:\n",
        "        else:\n",
        conforms("settle", "sqlite"),
    ),
    Mutant(
        "Redis settles under any epoch",
        "stores/redis/scripts/settle.lua",
        "if owner ~= epoch or epoch == '0000000000000000' then",
        "if epoch == '0000000000000000' then",
        conforms("settle", "redis"),
    ),
    Mutant(
        "Redis settles under any receipt",
        "stores/redis/scripts/settle.lua",
        "if not head or head.receipt ~= receipt or receipt == '' then",
        "if not head then",
        conforms("settle", "redis"),
    ),
    Mutant(
        "Redis keeps a window of which it has forgotten a part",
        "stores/redis/scripts/pull_stream.lua",
        "(leased <= now or is_ahead)",
        "leased <= now",
        conforms("leases", "redis", "has_forgotten"),
    ),
    Mutant(
        "SQL keeps a window of which it has forgotten a part",
        "stores/sql/slot_overview.py",
        "cursor.lease_until <= now_ms or ask.is_ahead_of(cursor.read, cursor.in_window())",
        "cursor.lease_until <= now_ms",
        conforms("leases", "sqlite", "has_forgotten"),
    ),
    Mutant(
        "who has received more than the store knows of is not told where to go on",
        "stores/model/window.py",
        "            pulled.stops[ask.slot] = cursor.read\n        return 0\n",
        "            pass\n        return 0\n",
        conforms("leases", "model", "has_nothing_new"),
    ),
    Mutant(
        "a worker does not say what it has in hand",
        "runtime/feed/ask_planner.py",
        "None if in_hand is None else in_hand[slot]",
        "None",
        UNIT + "test_ask_planner.py",
    ),
    Mutant(
        "a failover brings slots back to who takes them for nobody's",
        "coordination/lease.py",
        "structs.replace(self._roster, version=_NEVER.version, owners=owners)",
        "structs.replace(self._roster, owners=owners)",
        UNIT + "test_sharing.py -k failover",
    ),
    Mutant(
        "what stood before a bell was cut off is answered",
        "stores/redis/bell.py",
        "        if self._hears_replies:\n            self.address",
        "        if self._hears_replies and not self.address:\n            self.address",
        "tests/integration/stores/redis/test_bell.py",
    ),
    Mutant(
        "Redis acknowledges an offset twice that stands twice in a call",
        "stores/redis/scripts/settle_stream.lua",
        "  if from < (added[#added] or 0) then",
        "  if false then",
        conforms("settle", "redis", "any_order"),
    ),
    Mutant(
        "Redis ends an offset twice that stands twice in a call",
        "stores/redis/scripts/end_stream.lua",
        "ended[offset] and 't' or held",
        "held",
        conforms("settle", "redis", "any_order"),
    ),
    Mutant(
        "Redis takes what is behind a settled range for settled",
        "stores/redis/scripts/parts/ranges.lua",
        "    if ranges[2 * middle] > offset then",
        "    if ranges[2 * middle] >= offset then",
        conforms("settle", "redis", "any_order"),
    ),
    Mutant(
        "Redis tells a roster without those whose lease has passed as that version",
        "stores/redis/scripts/roster.lua",
        "#living == #joined and roster.version or '0'",
        "roster.version",
        conforms("rosters", "redis", "whoever_looks"),
    ),
    Mutant(
        "the model tells a roster without those whose lease has passed as that version",
        "stores/model/rosters.py",
        "roster.version if len(living) == len(roster.members) else NO_VERSION",
        "roster.version",
        "tests/unit/test_sharing.py",
    ),
    Mutant(
        "Redis takes for missing what stands in an entry that was not read",
        "stores/redis/log_readahead.py",
        "            if is_sound:\n                return taken, True\n",
        "            return taken, is_sound\n",
        "tests/integration/stores/redis/test_readahead.py",
    ),
    Mutant(
        "Redis rings no bell when a timer is moved",
        "stores/redis/scripts/parts/timer.lua",
        "  ring(slot)\n",
        "",
        conforms("bell", "redis", "moved"),
    ),
    Mutant(
        "SQL rings no bell when a timer is moved",
        "stores/sql/timers.py",
        "    notify_messages(transaction, ref, [cursor % PER_TOPIC for cursor, _ in edited])\n",
        "",
        conforms("bell", "postgres", "moved"),
    ),
    Mutant(
        "Redis rings no bell for what is revoked",
        "stores/redis/scripts/revoke.lua",
        "ring(slot) -- also so that no pull stands there\n",
        "",
        conforms("bell", "redis", "revoked"),
    ),
    Mutant(
        "Redis hands a message out where nobody listens",
        "stores/redis/scripts/parts/answer.lua",
        "envelope) > 0\n",
        "envelope) >= 0\n",
        conforms("standing", "redis", "gone"),
    ),
    Mutant(
        "Redis hands out what is published before what has come due",
        "stores/redis/scripts/parts/answer.lua",
        "(till == 0 or till > now)",
        "true",
        conforms("standing", "redis", "due_meanwhile"),
    ),
    # Another one acts between a read and a write.
    Mutant(
        "SQL leaves out a group that subscribes beside a publish",
        "stores/sql/groups.py",
        "    lock_slots(transaction, ref, ref.topic.all_slots)\n    starts: dict[int, int] = {}\n",
        "    starts: dict[int, int] = {}\n",
        inside("mariadb"),
    ),
    Mutant(
        "SQL rings no bell for dead letters that are retried",
        "stores/sql/dead.py",
        "    notify_messages(transaction, ref, [cursor % PER_TOPIC for cursor in of_cursors])\n",
        "",
        inside("sqlite"),
    ),
    Mutant(
        "Redis rings no bell for dead letters that are retried",
        "stores/redis/scripts/retry_dead.lua",
        "if done > 0 then\n  ring(slot)\nend\n",
        "",
        inside("redis"),
    ),
    Mutant(
        "SQL takes a group that was dropped meanwhile for one without the message",
        "stores/sql/unblock.py",
        "    cursor = lock_group_cursors(transaction, ref, group, [slot])[slot]\n",
        "    from qframe.stores.sql.cursors import lock_cursors\n\n"
        "    at = ref.cursor_number(known_group(transaction, ref, group), slot)\n"
        "    cursor = lock_cursors(transaction, [at]).get(at)\n"
        "    if cursor is None:\n        return None\n",
        inside("postgres"),
    ),
    Mutant(
        "Redis has nothing to retry of a group that was dropped meanwhile",
        "stores/redis/dead.py",
        "        require(redis, keys, group)\n    try:\n",
        "        pass\n    try:\n",
        inside("redis"),
    ),
]
