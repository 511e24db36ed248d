"""Faults that once survived the whole suite, or are of their kinds.

No time passed inside a call, nobody came between a read and a write, and no clock went back.
"""

from __future__ import annotations

from typing import Final

from mutants.mutant import (
    MEMBER,
    RELAY,
    RENEWER,
    SESSIONS,
    SETTLER,
    SLOTS,
    UNIT,
    WORKER,
    Mutant,
    conforms,
    inside,
)

SURVIVED: Final = [
    Mutant(
        "slots are left before the settlers have sent",
        "runtime/process/shutdown.py",
        "    for consumer in consumers:\n        if not consumer.settler.stop(LAST_WORDS_S):\n",
        "    for consumer in consumers:\n        consumer.slots.leave()\n"
        "        if not consumer.settler.stop(LAST_WORDS_S):\n",
        f"{UNIT}test_shutdown.py {WORKER}",
    ),
    Mutant(
        "a pause wakes no monitor",
        "runtime/executors/thread_executor.py",
        "            heapq.heappush(self._paused, (due_s, next(self._pauses), attempt))\n"
        "        self._awake.set()\n",
        "            heapq.heappush(self._paused, (due_s, next(self._pauses), attempt))\n",
        UNIT + "test_pool.py",
    ),
    Mutant(
        "a lease is counted from when the reply came",
        "runtime/feed/lease_renewer.py",
        "        for kept in holds.values():\n",
        "        sent_s = self._clock.monotonic_s()\n        for kept in holds.values():\n",
        RENEWER,
    ),
    Mutant(
        "a membership is counted from when the reply came",
        "coordination/lease.py",
        "            self._heartbeat_s = now_s\n",
        "            self._heartbeat_s = self._clock.monotonic_s()\n",
        MEMBER,
    ),
    Mutant(
        "a sign of life counts before the roster was read",
        "coordination/lease.py",
        "        if not (beats or has_changed):\n",
        "        self._heartbeat_s = now_s if beats else self._heartbeat_s\n"
        "        if not (beats or has_changed):\n",
        MEMBER,
    ),
    Mutant(
        "a slot that left and came back counts as kept",
        "runtime/feed/slots.py",
        "        lost = {slot for slot, epoch in self._open.items() if owned.get(slot) != epoch}\n",
        "        lost = {slot for slot in self._open if slot not in owned}\n",
        SLOTS,
    ),
    Mutant(
        "auto_ack is not set back before a retry here",
        "runtime/handler/attempt.py",
        "        self.auto_ack: bool = auto_ack\n\n    def suspect",
        "\n    def suspect",
        UNIT + "test_local_retries.py",
    ),
    Mutant(
        "another's slot is let go in ZooKeeper",
        "coordination/zookeeper_session.py",
        "        others = self._not_mine(list(slots))\n        # Refused",
        "        others = self._not_mine([])\n        # Refused",
        UNIT + "test_zookeeper_session.py",
    ),
    # Two act on what both have seen.
    Mutant(
        "Redis counts the dead letters that were named to be dropped",
        "stores/redis/scripts/rewrite.lua",
        "remove_dead_letters(group, { member }) == 0 then\n",
        "remove_dead_letters(group, { member }) < 0 then\n",
        conforms("edits", "redis", "together"),
    ),
    Mutant(
        "SQL settles dead letters before their cursors are locked",
        "stores/sql/edits.py",
        "        check_open(ref, lock_cursors(transaction, numbers).values())\n",
        "        numbers.clear()\n",
        inside("postgres"),
        "test-all",
    ),
    Mutant(
        "SQL publishes to the groups that were there before it has locked their cursors",
        "stores/sql/publish.py",
        "        if not (absent := wanted.keys() - lock_cursors(transaction, wanted).keys()):\n",
        "        if lock_cursors(transaction, wanted) is not None:\n",
        inside("postgres"),
        "test-all",
    ),
    # Bells.
    Mutant(
        "SQL counts a dead letter twice that is named twice",
        "stores/sql/edits.py",
        "letters.pop((cursors[0], edit.seq), None)",
        "letters.get((cursors[0], edit.seq))",
        conforms("edits", "sqlite", "together"),
    ),
    Mutant(
        "SQL rings no bell for what is revoked",
        "stores/sql/leases.py",
        "            notify_messages(transaction, ref, [ask.slot])\n",
        "            pass\n",
        conforms("bell", "postgres", "revoked"),
        "test-all",
    ),
    Mutant(
        "a listener that is back rings no bell for what it has missed",
        "stores/sql/notification_hub.py",
        "            self._bells.ring()\n            self.has_begun.set()\n",
        "            self.has_begun.set()\n",
        "tests/unit/test_notification_hub.py",
    ),
    Mutant(
        "a subscription that is back names no slots for what it has missed",
        "stores/redis/bell.py",
        "        self._any = True\n        try:\n",
        "        try:\n",
        "tests/integration/stores/redis/test_bell.py",
    ),
    # Clocks.
    Mutant(
        "a bucket does not notice a clock that went back",
        "stores/bucket.py",
        "    if granted or passed_ms < 0:\n",
        "    if granted:\n",
        conforms("controls", "sqlite", "clock"),
    ),
    Mutant(
        "a bucket in Redis does not notice a clock that went back",
        "stores/redis/scripts/draw.lua",
        "if granted > 0 or passed < 0 then\n",
        "if granted > 0 then\n",
        conforms("controls", "redis", "clock"),
    ),
    Mutant(
        "leases are counted by a wall clock",
        "runtime/feed/lease_renewer.py",
        "        sent_s = self._clock.monotonic_s()\n        try:\n",
        "        sent_s = self._clock.now_ms() / 1000\n        try:\n",
        RENEWER,
    ),
    # Renewal and sharing.
    Mutant(
        "slots whose renewal was not heard of count as renewed",
        "runtime/feed/lease_renewer.py",
        "        away = [one for hold in renewed.unreachable for one in holds.pop(hold)]\n",
        "        away: list[Delivery] = []\n",
        RENEWER,
    ),
    Mutant(
        "a sign of life in ZooKeeper is counted from when the reply came",
        "coordination/zookeeper_session.py",
        "                self._give_sign_of_life()\n                self._heard_s = now_s\n",
        "                self._give_sign_of_life()\n"
        "                self._heard_s = self._clock.monotonic_s()\n",
        SESSIONS,
    ),
    Mutant(
        "slots of a session that has expired are kept",
        "coordination/zookeeper_session.py",
        "                lost = frozenset(owned)\n",
        "                lost = frozenset()\n",
        "tests/integration/coordination/test_zookeeper_faults.py -k expired",
    ),
    # Settling.
    Mutant(
        "what was kept is sent behind what came later",
        "runtime/feed/settlement_sender.py",
        "            return unsent + batch\n",
        "            return batch + unsent\n",
        SETTLER,
    ),
    Mutant(
        "settlements overtake those of their slot that are kept",
        "runtime/feed/settlement_sender.py",
        "        return [one for one in batch if _delivery(one).slot not in slots]\n",
        "        return batch\n",
        SETTLER,
    ),
    # Elsewhere.
    Mutant(
        "a relay forgets when it has first sent what is in doubt",
        "outbox/relay.py",
        "except (StoreUnavailable, StoreFull):\n            self",
        "except (StoreUnavailable, StoreFull, PublishUnknown):\n            self",
        f"{RELAY} -k 'may_have_been_sent'",
    ),
    Mutant(
        "an audit as JSON ends with 0 whatever it has found",
        "cli/look.py",
        "    if any(faults.values()):\n",
        "    if any(faults.values()) and not as_json:\n",
        "tests/integration/cli/test_reading.py -k verify_exits",
    ),
    Mutant(
        "of slots that share a small batch the largest gets nothing",
        "spark/stream_reader.py",
        "    turn = sum(begin.values()) % len(begin)\n",
        "    turn = 0\n",
        "tests/spark/test_stream_offsets.py -k 'every_slot'",
    ),
]
