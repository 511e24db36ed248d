"""Faults in sweeping, and in how the runtime keeps the order of a stream's keys."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant, conforms

SWEEPER: Final = UNIT + "test_sweeper.py"
KEEP_ORDER: Final = UNIT + "test_keep_order.py"
LANES: Final = UNIT + "test_lanes.py"

OCCASIONAL: Final = UNIT + "test_occasional_sweeping.py"
TIMERS_DB: Final = "tests/integration/stores/test_timers_db.py"

SWEEPING: Final = [
    Mutant(
        "a producer sweeps at its first message",
        "producing/sweeping.py",
        "began_s + FIRST_S)",
        "began_s)",
        OCCASIONAL,
    ),
    Mutant(
        "a producer sweeps half of the time",
        "producing/sweeping.py",
        "pause_s = REST * took_s",
        "pause_s = took_s",
        OCCASIONAL,
    ),
    Mutant(
        "a producer that may not sweep tries again and again",
        "producing/sweeping.py",
        "        except StoreForbidden:\n            pause_s = math.inf\n",
        "",
        OCCASIONAL,
    ),
    Mutant(
        "a producer sweeps nothing",
        "producing/producer.py",
        "        if self._sweeper is not None:\n            self._sweeper.look(topic)\n",
        "",
        OCCASIONAL,
    ),
    Mutant(
        "a sweeper is behind for ever with what it was behind with",
        "runtime/process/sweeper.py",
        "                    self.behind_s.pop(topic.name, None)\n",
        "",
        SWEEPER,
    ),
    Mutant(
        "timers go into whichever database a process was given",
        "stores/pair.py",
        "if mark != self._known_mark and self._timers.topic(mark_topic(mark).name) is None:",
        "if False:",
        TIMERS_DB + " -k another_database",
    ),
    Mutant(
        "a topic that lies astray in Redis keeps workers from starting",
        "stores/pair.py",
        "                if self._timers.topic(topic.name) is None:\n                    raise\n",
        "                raise\n",
        TIMERS_DB + " -k stray",
    ),
    Mutant(
        "a topic with much to remove is swept whole before the others",
        "runtime/process/sweeper.py",
        "for topic in [*left]:",
        "for topic in left[:1]:",
        SWEEPER,
    ),
    Mutant(
        "a sweep rests as long as its step took",
        "producing/sweeping.py",
        "REST: Final = 9\n",
        "REST: Final = 1\n",
        SWEEPER,
    ),
    Mutant(
        "a run that ends when nothing is left sweeps nothing",
        "runtime/process/worker.py",
        "                self._sweeper.sweep(BURST_S)  # nobody else may ever do it\n",
        "",
        SWEEPER,
    ),
    Mutant(
        "a query that commits sweeps nothing",
        "spark/stream_reader.py",
        "        self._move_group(self._checked(end))\n        self._sweep()\n",
        "        self._move_group(self._checked(end))\n",
        "tests/spark/test_stream_offsets.py",
    ),
    Mutant(
        "a sweeper that has found nothing for long stays slow when there is much again",
        "runtime/process/sweeper.py",
        "EVERY_S if removed else min(SELDOM_S, pause_s * 2), 0.0",
        "pause_s if removed else min(SELDOM_S, pause_s * 2), 0.0",
        SWEEPER,
    ),
    Mutant(
        "the growth of a topic is taken over by the clock of another store",
        "runtime/process/sweeper.py",
        "topic.growth.until_ms <= self._store.now_ms(topic)",
        "topic.growth.until_ms <= self._store.now_ms()",
        SWEEPER,
    ),
    Mutant(
        "a sweep of Redis trims an entry of which messages are kept",
        "stores/redis/scripts/sweep.lua",
        "begin = kept == start + size and kept or start",
        "begin = kept",
        conforms("sweeping", "redis"),
    ),
    Mutant(
        "nothing keeps messages for the next group when the last one of a queue expires in SQL",
        "stores/sql/groups.py",
        "        rows += _drop(transaction, ref, number, name)\n        dropped += 1\n",
        "        rows += remove(transaction, ref, number, name)\n        dropped += 1\n",
        conforms("expiry", "sqlite"),
    ),
    Mutant(
        "a group that expires in Redis is forgotten with the first step of its removal",
        "stores/redis/scripts/parts/drop.lua",
        "  if has_backlog then\n    -- A scan",
        "  redis.call('ZREM', slot .. 'expiries', name)\n  if has_backlog then\n    -- A scan",
        conforms("expiry", "redis"),
    ),
    Mutant(
        "the history of slots that were split is never swept in SQL",
        "stores/sql/histories.py",
        "for slot in (*ref.topic.past_slots, *ref.topic.all_slots):",
        "for slot in ref.topic.all_slots:",
        conforms("sweeping", "sqlite"),
    ),
    Mutant(
        "effects are swept for the first time when a worker has run for a minute",
        "idempotency/sweep.py",
        "            self._sweep()\n            self._stopping.wait(EVERY_S)\n",
        "            self._stopping.wait(EVERY_S)\n            self._sweep()\n",
        SWEEPER,
    ),
    # Order.
    Mutant(
        "a key is opened before the store has heard what went back behind a retry in a batch",
        "runtime/order/settlement_order.py",
        "                self._park([delivery, *behind])\n",
        "                self._park([delivery])\n",
        KEEP_ORDER,
    ),
    Mutant(
        "a key is opened before the store has heard what a batch gives back",
        "runtime/order/settlement_order.py",
        "                self._park(cut)\n",
        "",
        KEEP_ORDER,
    ),
    Mutant(
        "what was lost while it was pulled is waited for in its run",
        "runtime/order/batch_order.py",
        "            mine = [one for one in deliveries if self._is_mine(one)]\n",
        "            mine = deliveries\n",
        LANES,
    ),
    Mutant(
        "what has ended behind a lost message is never told",
        "runtime/order/settlement_order.py",
        "            for name in names & self._runs.keys():\n                self._advance(name)\n",
        "",
        KEEP_ORDER,
    ),
    Mutant(
        "a pause gives back the first of a key and keeps what waits behind it",
        "runtime/order/key_order.py",
        "            deliveries = deliveries + self._lanes.withdraw(wanted)\n"
        "            self._put_back(deliveries + self._taken_along(deliveries))\n",
        "            deliveries = deliveries + self._lanes.withdraw(wanted)\n"
        "            self._put_back(deliveries)\n",
        KEEP_ORDER,
    ),
]
