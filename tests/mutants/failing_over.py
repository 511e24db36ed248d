"""Faults of what a failover loses, of what replicas have, and of timers in a second store."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

REPLICAS: Final = "tests/integration/stores/redis/test_replicas.py"
FAILOVER: Final = "tests/integration/stores/redis/test_failover.py"
TIMERS_DB: Final = "tests/integration/stores/test_timers_db.py"
PAIR: Final = UNIT + "test_store_pair.py"

FAILING_OVER: Final = [
    # Failover.
    Mutant(
        "no replica is waited for where another slot of the call is closed",
        "stores/redis/publish.py",
        "            self._await_replicas(keys, entries)\n            raise SlotsClosed",
        "            raise SlotsClosed",
        REPLICAS + " -k beside_a_closed_slot",
    ),
    Mutant(
        "one server with enough replicas will do for all servers of a call",
        "drivers/redis.py",
        "if (found := min(answer[1] for answer in answered)) < needed:",
        "if (found := max(answer[1] for answer in answered)) < needed:",
        REPLICAS + " -k each_server_of_a_cluster",
    ),
    Mutant(
        "a slot is discarded before replicas have heard that it was split",
        "stores/redis/growing.py",
        "    if splits:\n        redis.await_replicas([key])\n    return is_done\n",
        "    return is_done\n",
        REPLICAS + " -k that_was_split",
    ),
    Mutant(
        "a look for a forgotten growth counts though it has failed",
        "stores/redis/publish.py",
        "            return\n        try:\n            found = declared(",
        "            return\n        self._seen_at[topic.name] = breaks, now_s\n"
        "        try:\n            found = declared(",
        FAILOVER + " -k next_one_looks",
    ),
    # Timers in a database beside Redis.
    Mutant(
        "while Redis is away its topics are unknown",
        "stores/pair.py",
        "        if found is None and away is not None:\n            raise away\n",
        "",
        PAIR,
    ),
    Mutant(
        "a store that is away keeps the settings of the other from all",
        "stores/pair.py",
        "        if away and not any(each is not None for each in found.values()):\n",
        "        if away:\n",
        PAIR,
    ),
    Mutant(
        "a signpost goes with the first part of what its topic has",
        "stores/pair.py",
        "        if done and topic.kind is Kind.DELAY:\n",
        "        if topic.kind is Kind.DELAY:\n",
        PAIR,
    ),
    Mutant(
        "whether a growth is taken goes by the clock of the other store",
        "stores/growth_lease.py",
        "        if self.topic.growth.until_ms > self._store.now_ms(self.topic):\n",
        "        if self.topic.growth.until_ms > self._store.now_ms():\n",
        TIMERS_DB + " -k growth_of_timers",
    ),
]
