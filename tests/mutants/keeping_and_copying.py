"""Faults in streams that keep order, in copies of topics, and in slots that were split."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant, conforms

PARK: Final = "keep_order"
COPY: Final = "copying"

FINISHED: Final = (
    "            self._target.remember(self._topic, self._topic.all_slots[0], marks={_MARK: 1})\n"
)
GO: Final = "            self._give_tunings()\n"

KEEPING_AND_COPYING: Final = [
    Mutant(
        "a database's pull hands out of the line what follows a key that it has itself parked",
        "stores/sql/pull.py",
        "    parks = overview.may_park() or (bool(overview.max_parked) and may_be_due)\n",
        "    parks = overview.may_park()\n",
        conforms(PARK, "sqlite", "holds_back"),
    ),
    Mutant(
        "Redis gives a lost reply of a full line again only once that is read on",
        "stores/redis/scripts/pull_stream.lua",
        "if handed < limit then\n  start =",
        "if handed < limit and full == 0 then\n  start =",
        conforms(PARK, "redis", "full"),
    ),
    Mutant(
        "a dead letter that is retried goes behind a later head of its key that waits",
        "stores/sql/parking.py",
        "not (stays and head.state == HeadState.DOING)",
        "not stays",
        conforms(PARK, "sqlite", "dead_letter"),
    ),
    Mutant(
        "Redis rings for a line that was full only if more than the most was parked",
        "stores/redis/scripts/parts/places.lua",
        "behind - by >= group.max_parked)",
        "behind - by > group.max_parked)",
        conforms(PARK, "redis", "bell"),
    ),
    Mutant(
        "a group of Redis that begins to keep order counts nothing of what it has in hand",
        "stores/redis/scripts/subscribe.lua",
        "      'running', redis.call('ZCARD', group.doing))\n",
        "      'running', 0)\n",
        conforms(PARK, "redis", "begins"),
    ),
    Mutant(
        "a copy's group of a broadcast consumer lives for ever",
        "admin/copying.py",
        '_BROADCAST_EXPIRES_MS if "@" in name else None',
        "None",
        conforms(COPY, "model", "broadcast"),
    ),
    Mutant(
        "a copy into Redis counts what is behind a head that waits for its retry as due",
        "stores/redis/scripts/restore.lua",
        "    local waits = redis.call('ZSCORE', group.waiting, subject)\n"
        "      or redis.call('ZSCORE', group.retry, subject)\n",
        "    local waits = redis.call('ZSCORE', group.waiting, subject)\n",
        conforms(COPY, "redis", "no_more"),
    ),
    Mutant(
        "a copy into a database takes a page for sorted when it looks for what was written before",
        "stores/sql/copying.py",
        "    span = min(names), max(names), min(numbers), max(numbers)\n",
        "    span = names[0], names[-1], numbers[0], numbers[-1]\n",
        conforms(COPY, "sqlite", "written_down_again"),
    ),
    Mutant(
        "a copy lets its groups go before it says that it is finished",
        "admin/copying.py",
        f"{FINISHED}{GO}",
        f"{GO}{FINISHED}",
        conforms(COPY, "model", "copy_of_a_copy_may"),
    ),
    Mutant(
        "the copy of a copy loses on its way the mark that says what it is",
        "admin/copying.py",
        "                kept = {mark: at for mark, at in values.items() if mark != _MARK}\n"
        "                self._target.remember(self._topic, slot, marks=kept)\n",
        "                self._target.remember(self._topic, slot, marks=values)\n",
        conforms(COPY, "model", "copy_of_a_copy_may"),
    ),
    Mutant(
        "a copy leaves schedules where they are",
        "admin/copying.py",
        "_SPACES: Final = (Space.SCHEDULES, Space.QUEUES)",
        "_SPACES: Final = (Space.QUEUES,)",
        conforms(COPY, "model", "records_go_with"),
    ),
    Mutant(
        "a copy that is made again keeps records that were removed since",
        "admin/copying.py",
        "                removals = [Write(document.name, None) for document in page]\n",
        "                removals: list[Write] = []\n",
        conforms(COPY, "model", "records_go_with"),
    ),
    Mutant(
        "a sweep ends a group of Redis in a slot that was split once its time there has passed",
        "stores/redis/scripts/sweep.lua",
        "local expired = past ~= '2' and redis.call",
        "local expired = redis.call",
        conforms("expiry", "redis", "were_split"),
    ),
]
