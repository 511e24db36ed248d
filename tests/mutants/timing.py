"""Faults in timers and schedules: whose clock, which end, and what a flush or a failover leaves."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant, conforms

TIMERS: Final = UNIT + "test_timers.py"
SCHEDULES: Final = f"{UNIT}test_schedules.py {UNIT}test_schedule_decision.py"

TIMING: Final = [
    Mutant(
        "a delay of a timer counts from the clock of Redis, where it lies in the database",
        "admin/timer_changes.py",
        "at_ms = store.now_ms(topic) + delay_ms",
        "at_ms = store.now_ms() + delay_ms",
        TIMERS,
    ),
    Mutant(
        "a timer whose id is among the dead already is not looked for where it waits",
        "admin/timer_status.py",
        'if message_id is not None and all(each.state == "dead" for each in records):',
        "if message_id is not None and not records:",
        TIMERS,
    ),
    Mutant(
        "what is behind a cancelled head is not counted in Redis",
        "stores/redis/scripts/rewrite.lua",
        "    count(group, 'cancelled', 1 + length_behind(group, subject))\n"
        "    redis.call('HDEL', group.body, subject)\n"
        "    redis.call('HDEL', group.tries, subject)\n"
        "    redis.call('DEL', behind_of(group, subject))\n",
        "    redis.call('HDEL', group.body, subject)\n"
        "    redis.call('HDEL', group.tries, subject)\n"
        "    redis.call('DEL', behind_of(group, subject))\n"
        "    count(group, 'cancelled', 1 + length_behind(group, subject))\n",
        conforms("timers", "redis", "cancelling"),
    ),
    Mutant(
        "a change of many timers that is stopped on its way is in no audit",
        "admin/timer_verbs.py",
        "        try:\n"
        "            change_all(\n"
        "                context.store, found, which, edit_of, by=context.audit.by, "
        "dry_run=dry_run,\n"
        "                counts=counts, on_progress=on_progress,\n"
        "            )  # fmt: skip\n"
        "        finally:",
        "        change_all(\n"
        "            context.store, found, which, edit_of, by=context.audit.by, "
        "dry_run=dry_run,\n"
        "            counts=counts, on_progress=on_progress,\n"
        "        )  # fmt: skip\n"
        "        if True:",
        TIMERS,
    ),
    Mutant(
        "a page of what waits for a stream leaves out the same moment in other slots",
        "stores/sql/pages.py",
        "        elif (0, slot) < (after.seq, after.slot):  # those of that moment are before it\n",
        "        else:\n",
        conforms("timers", "sqlite"),
    ),
    Mutant(
        "after a flush the schedules of code are not put again",
        "schedules/leader.py",
        "                self._records.open()\n                self._declared = False\n",
        "                self._records.open()\n",
        SCHEDULES,
    ),
    Mutant(
        "a leader who knows what a failover has forgotten writes over a person's change",
        "schedules/records.py",
        "Write(schedule.name, text, schedule.version, rank)",
        "Write(schedule.name, text, None, rank)",
        f"{UNIT}test_schedule_decision.py",
    ),
    Mutant(
        "a schedule looks for its message at the place of one in the stream of before",
        "schedules/leader.py",
        '"last_key": sending.template.key, "last_place": None,',
        '"last_key": sending.template.key,',
        SCHEDULES,
    ),
    Mutant(
        "the window of late ticks counts from the minute of grace",
        "schedules/decision.py",
        "max(after_ms, horizon_ms - rules.window_ms)",
        "max(after_ms, late_ms - rules.window_ms)",
        SCHEDULES,
    ),
    Mutant(
        "a leader that ends keeps its slot",
        "schedules/leader.py",
        "            self._steps.rest()\n            self.leave()\n",
        "            self._steps.rest()\n",
        SCHEDULES,
    ),
]  # fmt: skip
