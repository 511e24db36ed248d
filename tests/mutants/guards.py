"""Guards against faults that chaos or the simulator has found, taken away one at a time."""

from __future__ import annotations

from typing import Final

from mutants.mutant import (
    MEMBER,
    PULL,
    RELAY,
    RENEWER,
    SESSIONS,
    SLOTS,
    UNIT,
    Mutant,
    conforms,
    inside,
)  # fmt: skip

GUARDS: Final = [
    Mutant(
        "keys stand still once their slot has left and come back",
        "runtime/feed/slots.py",
        "self._held.items() if owned.get(slot) != epoch}\n",
        "self._held.items() if epoch and slot not in owned}\n",
        SLOTS,
    ),
    Mutant(
        "a worker that was just thawed begins a handler",
        "runtime/consume/engine.py",
        "            if now_s() >= until_s or delivery not in present",
        "            if delivery not in present",
        UNIT + "test_certainty.py",
    ),
    Mutant(
        "a worker that was just thawed begins a handler that has to be admitted",
        "runtime/consume/engine.py",
        "            elif not certain or attempt.delivery not in self._in_flight:\n",
        "            elif attempt.delivery not in self._in_flight:\n",
        UNIT + "test_certainty.py",
    ),
    Mutant(
        "Redis rings no bell for what a settlement has made due",
        "stores/redis/scripts/settle.lua",
        "if has_placed then\n  ring(slot)\nend\n",
        "",
        conforms("bell", "redis", "settlement"),
    ),
    Mutant(
        "a publish in doubt is called unwritten",
        "producing/producer.py",
        "                if lost is None:\n                    raise\n",
        "                raise\n",
        "tests/chaos/test_redis_doubt.py",
    ),
    Mutant(
        "a handler is called for what was lost while it was claimed",
        "runtime/consume/engine.py",
        "unit = self._still_here(self._sorted_out(policy.begin(unit)))  # that",
        "unit = self._sorted_out(policy.begin(unit))  # that",
        "tests/integration/checkers/test_late_claims.py",
    ),
    Mutant(
        "a handler gets a transaction for what was lost while it was claimed",
        "runtime/consume/engine.py",
        "lost = [attempt for attempt in unit if not self.is_mine(attempt)]  # it",
        "lost: list[Attempt] = []  # it",
        "tests/integration/checkers/test_late_claims.py",
    ),
    Mutant(
        "what stands before one in hand is withdrawn, and comes after it",
        "runtime/order/batches.py",
        "return wanted(message.delivery) and not (last and self._precedes(message, last))\n",
        "return wanted(message.delivery)\n",
        UNIT + "test_batches.py",
    ),
    Mutant(
        "an executor of batches does not say what is in hand when it withdraws",
        "runtime/executors/batch_executor.py",
        "        return self._batches.withdraw(wanted, in_hand) + parts\n",
        "        return self._batches.withdraw(wanted) + parts\n",
        UNIT + "test_pool.py",
    ),
    Mutant(
        "who is not certain is asked twice, and has dropped nothing",
        "coordination/member.py",
        "        return not self.drop_if_doubtful()\n",
        "        self.drop_if_doubtful()\n        return not self._doubtful\n",
        MEMBER,
    ),
    Mutant(
        "slots whose claim was not answered stay nobody's",
        "coordination/lease.py",
        "        self._free_unknown(topic, owned)\n",
        "",
        MEMBER,
    ),
    Mutant(
        "a session that has passed leaves a seat that nobody sits on",
        "coordination/zookeeper_session.py",
        "        if self._zookeeper.session_id != self._session_id:\n"
        "            # Its session has expired",
        "        if self._zookeeper.session_id != self._zookeeper.session_id:\n"
        "            # Its session has expired",
        SESSIONS,
    ),
    Mutant(
        "a relay takes a mark back of what was another's to send meanwhile",
        "outbox/relay.py",
        "            self._untaken.clear()  # who had some",
        "            pass  # who had some",
        f"{RELAY} -k takes_no_mark_back",
    ),
    Mutant(
        "slots pass on with a pull in doubt",
        "runtime/consume/consumer.py",
        "busy=lambda: self.in_flight.slots() | self.pull_loop.unrevoked(),",
        "busy=self.in_flight.slots,",
        UNIT + "test_certainty.py",
    ),
    Mutant(
        "who stops leaves a pull in doubt",
        "runtime/feed/pull_loop.py",
        "            self._in_doubt.revoke(at_once=True)\n",
        "            pass\n",
        PULL,
    ),
    Mutant(
        "a stream is read on behind what was lost",
        "runtime/feed/lease_renewer.py",
        "                    self._on_stream_lost(slots)\n",
        "                    pass\n",
        RENEWER,
    ),
    Mutant(
        "SQL revokes nothing of a stream's line",
        "stores/sql/leases.py",
        "window.revoke(transaction, ref, cursor, ask.position, receipt)\n",
        "0\n",
        conforms("leases", "sqlite"),
    ),
    Mutant(
        "what is given back goes to the store behind a retry that has taken it along",
        "runtime/order/key_order.py",
        "threading.Lock()  # from when",
        "__import__('contextlib').nullcontext()  # from when",
        UNIT + "test_lanes.py",
    ),
    Mutant(
        "offsets of two slots that are alike are taken for one run",
        "runtime/handler/retry_policy.py",
        "    return delivery.slot, delivery.subject, delivery.receipt\n",
        "    return 0, delivery.subject, delivery.receipt\n",
        UNIT + "test_lanes.py",
    ),
    Mutant(
        "a topic that is deleted while it is declared is not there then",
        "stores/sql/topic_ref.py",
        "    ).with_for_update(of=topics),\n",
        "    ),\n",
        inside("postgres"),
    ),
    Mutant(
        "a run goes back from its lowest number on",
        "runtime/handler/retry_policy.py",
        "    for one in deliveries:\n",
        "    for one in sorted(deliveries, key=lambda each: each.seq):\n",
        UNIT + "test_lanes.py",
    ),
    Mutant(
        "what went back with a retried one of its run is given back again",
        "runtime/order/settlement_order.py",
        "                if not places:\n                    continue\n",
        "                if not places:\n"
        "                    self._put(Disposition(min(back, key=id), Verdict.RELEASE))\n"
        "                    continue\n",
        UNIT + "test_lanes.py",
    ),
    Mutant(
        "what its user has not acknowledged is marked at the end of a stop",
        "runtime/consume/finisher.py",
        "        if has_returned and attempt.auto_ack:",
        "        if has_returned:",
        UNIT + "test_late_marks.py -k took_over",
    ),
    Mutant(
        "what was settled first is told as lost where its handler ends in a renewal",
        "runtime/consume/consumer.py",
        "        settled = () if self._first is None else self._first.settled.copy()\n",
        "        settled = ()\n",
        RENEWER,
    ),
    Mutant(
        "a retry in place whose slot was lost becomes a delayed one",
        "runtime/consume/finisher.py",
        "        if is_local and attempt.cancelled and not attempt.overdue:",
        "        if False:",
        UNIT + "test_certainty.py",
    ),
    Mutant(
        "a stop does not wait for an effect that is being finished",
        "runtime/process/shutdown.py",
        "    until_s = clock.monotonic_s() + _LAST_WORDS_S\n",
        "    until_s = clock.monotonic_s()\n",
        UNIT + "test_late_marks.py -k being_finished",
    ),
    Mutant(
        "what was pulled while its lease was renewed is kept when that is gone",
        "runtime/feed/lease_renewer.py",
        "            lost += self._pulled_meanwhile(lost)\n",
        "            pass\n",
        RENEWER,
    ),
]
