"""Faults in the runtime, in coordination and in policies: the simulator reaches most of them."""

from __future__ import annotations

from typing import Final

from mutants.mutant import MEMBER, PULL, RENEWER, SETTLER, SLOTS, UNIT, WORKER, Mutant

RUNTIME: Final = [
    # What may have been handed out in a reply that was lost.
    Mutant(
        "a lost reply of a pull is not in doubt",
        "runtime/feed/pull_loop.py",
        "                if asks:\n                    self._doubt(asks, receipt)\n",
        "",
        PULL,
    ),
    Mutant(
        "slots whose part of a reply was lost are not in doubt",
        "runtime/feed/pull_loop.py",
        "            if pulled.in_doubt:\n",
        "            if not pulled.deliveries and False:\n",
        PULL,
    ),
    Mutant(
        "what could not be revoked is forgotten",
        "runtime/feed/in_doubt.py",
        "                away = [ask.slot for ask in asks]\n",
        "                away = []\n",
        PULL,
    ),
    Mutant(
        "slots in doubt are asked again",
        "runtime/feed/in_doubt.py",
        "if not self._damaged:\n            return self.unrevoked",
        "if not self._damaged:\n            return frozenset()",
        PULL,
    ),
    Mutant(
        "what was pulled of a slot that is lost meanwhile is handled",
        "runtime/feed/pull_loop.py",
        "owned = self._receiver.still_owned(deliveries)",
        "owned = deliveries",
        PULL,
    ),
    Mutant(
        "refused epochs are not told",
        "runtime/feed/pull_loop.py",
        "        if pulled.fenced:\n            self._receiver.fenced(pulled.fenced)\n",
        "",
        PULL,
    ),
    Mutant(
        "an idle loop sleeps over what falls due",
        "runtime/feed/pull_loop.py",
        "        at_s = everywhere_s if due_s is None else min(due_s, everywhere_s)\n",
        "        at_s = everywhere_s\n",
        PULL,
    ),
    Mutant(
        "a bell that is lost is missed while others ring",
        "runtime/feed/pull_loop.py",
        "has_rung and all_are_quiet and now_s < self._look_everywhere_at_s",
        "has_rung and all_are_quiet",
        PULL,
    ),
    Mutant(
        "slots that were left are told as lost",
        "runtime/feed/slots.py",
        "                self._changed()  # reports slots that were lost meanwhile\n"
        "                self._drained &= assignment.leaving\n",
        "                self._drained &= assignment.leaving\n                self._changed()\n",
        SLOTS,
    ),
    # Settlements.
    Mutant(
        "a settlement that could not be sent is dropped",
        "runtime/feed/settlement_sender.py",
        "            self.kept += [one for one, result in pairs if result is Settled.AWAY]\n",
        "",
        SETTLER,
    ),
    Mutant(
        "what was kept waits for the next settlement",
        "runtime/feed/settler.py",
        "        if not self._sender.kept:\n            return self._inbox.get()\n",
        "        if True:\n            return self._inbox.get()\n",
        SETTLER,
    ),
    Mutant(
        "leaving slots are not emptied after a flush",
        "runtime/feed/settlement_sender.py",
        "            self._on_settled()\n",
        "",
        f"{SETTLER} {WORKER}",
    ),
    Mutant(
        "a flush that is under way counts as nothing",
        "runtime/feed/settlement_sender.py",
        "        deliveries = self.sending = _deliveries(batch)\n",
        "        deliveries = _deliveries(batch)\n",
        f"{SETTLER} {RENEWER}",
    ),
    Mutant(
        "a stopped settler leaves what is kept",
        "runtime/feed/settler.py",
        "            is_done = not self._sender.kept or self._abandoned.is_set()\n",
        "            is_done = True\n",
        SETTLER,
    ),
    # Leases.
    Mutant(
        "a renewal that was not answered is made anew after a third of a lease",
        "runtime/feed/lease_renewer.py",
        "            self._was_answered = False\n",
        "            pass\n",
        RENEWER,
    ),
    Mutant(
        "leases that are gone are not lost",
        "runtime/feed/lease_renewer.py",
        "        lost = [one for hold in renewed.gone for one in holds.pop(hold)]\n",
        "        lost = [one for hold in renewed.gone for one in holds.pop(hold)][:0]\n",
        RENEWER,
    ),
    Mutant(
        "a lease that cannot be renewed never passes",
        "runtime/feed/lease_renewer.py",
        "        return [one for one in deliveries if now_s >= "
        "self._kept_until_s.setdefault(one, until_s)]",
        "        return []",
        RENEWER,
    ),
    Mutant(
        "what is being settled is lost, as its lease is gone",
        "runtime/feed/lease_renewer.py",
        "            lost = [one for one in lost if one not in settling]\n",
        "",
        RENEWER,
    ),
    # Slots.
    Mutant(
        "slots that leave are pulled from",
        "runtime/feed/slots.py",
        "                if slot not in assignment.leaving\n",
        "",
        SLOTS,
    ),
    Mutant(
        "slots are handed over with work in flight",
        "runtime/feed/slots.py",
        "        if empty := leaving - self._busy():\n",
        "        if empty := leaving:\n",
        SLOTS,
    ),
    Mutant(
        "what is in flight of a lost slot goes on",
        "runtime/feed/slots.py",
        "                self._on_lost(gone)\n",
        "                pass\n",
        SLOTS,
    ),
    Mutant(
        "a slot is taken again before what was had of it is lost",
        "runtime/feed/slots.py",
        "                self._lose_gone()  # also what it had of these under earlier epochs\n",
        "",
        SLOTS,
    ),
    Mutant(
        "epochs that the store refuses are used",
        "runtime/feed/slots.py",
        "            membership.fenced(refused)\n            return False\n",
        "            pass\n",
        SLOTS,
    ),
    Mutant(
        "slots that could not be taken are not tried again",
        "runtime/feed/slots.py",
        "            self.lacks = len(found) < len(wanted)\n",
        "",
        SLOTS,
    ),
    # Membership.
    Mutant(
        "a member is certain for ever",
        "coordination/member.py",
        "        return self._clock.monotonic_s() >= self._certain_until_s\n",
        "        return self._certain_until_s == float('-inf')\n",
        MEMBER,
    ),
    Mutant(
        "drained slots are not released",
        "coordination/member.py",
        "            self._change(lambda handover: handover.release())\n",
        "            pass\n",
        MEMBER,
    ),
    Mutant(
        "slots that were let go are never claimed again",
        "coordination/member.py",
        "                handover.freed(going)\n",
        "                pass\n",
        MEMBER,
    ),
    Mutant(
        "slots that others have are kept",
        "coordination/member.py",
        "                self._change(lambda handover: handover.lost(view.lost))\n",
        "                pass\n",
        MEMBER,
    ),
    Mutant(
        "a membership ends where the store is away",
        "coordination/member.py",
        "            except Unavailable as error:\n                failures += 1\n",
        "            except UnknownGroup as error:\n                failures += 1\n",
        MEMBER,
    ),
    Mutant(
        "leases end before a member is uncertain",
        "coordination/lease.py",
        "            lease_ms = round(self._lease_s * 1000)\n",
        "            lease_ms = round(self._lease_s * 400)\n",
        MEMBER,
    ),
    Mutant(
        "slots are claimed below their last epochs",
        "coordination/lease.py",
        "        latest = max(int(epoch, 16) for epoch in epochs.values())\n",
        "        latest = min(int(epoch, 16) for epoch in epochs.values())\n",
        MEMBER,
    ),
    Mutant(
        "a slot that came back under another epoch is not lost",
        "coordination/lease.py",
        "frozenset(slot for slot, epoch in owned.items() if mine.get(slot) != epoch)",
        "frozenset(slot for slot, epoch in owned.items() if slot not in mine)",
        MEMBER,
    ),
    # Order.
    Mutant(
        "a busy lane lets others through",
        "runtime/order/lanes.py",
        "                elif lane not in waiting:\n",
        "                elif not waiting.get(lane):\n",
        UNIT + "test_lanes.py",
    ),
    Mutant(
        "what is behind a retried message goes on",
        "runtime/order/key_order.py",
        "            if disposition.verdict is not Verdict.DEAD:\n",
        "            if disposition.verdict is Verdict.DEAD:\n",
        UNIT + "test_lanes.py",
    ),
    Mutant(
        "the line brings more of a key that was given back",
        "runtime/order/parked_keys.py",
        "        self.park(refused)\n        return kept, refused\n",
        "        return kept + refused, []\n",
        UNIT + "test_keep_order.py",
    ),
    Mutant(
        "a key is opened before all that was given back of it is answered",
        "runtime/order/parked_keys.py",
        "            if held := [one for one in back if self.is_held(one)]:\n",
        "            if held := [one for one in back[:1] if self.is_held(one)]:\n",
        UNIT + "test_keep_order.py",
    ),
    Mutant(
        "a key is opened by a pull that was under way when the store answered",
        "runtime/order/parked_keys.py",
        "        if not self._back:\n            return deliveries",
        "        self.before_pull()\n        if not self._back:\n            return deliveries",
        UNIT + "test_keep_order.py",
    ),
    Mutant(
        "what waits behind a parked key goes on",
        "runtime/order/key_order.py",
        "                    behind = self._park(self._parked, one)\n",
        "                    self._parked.park(one)\n",
        UNIT + "test_keep_order.py",
    ),
    Mutant(
        "what goes back with a retry is held still when the store is told of that",
        "runtime/order/key_order.py",
        "            self._gone(implied)\n"
        "        if after is not None:\n            self._put(after)\n",
        "        if after is not None:\n            self._put(after)\n"
        "        if deliveries:\n            self._gone(implied)\n",
        UNIT + "test_keep_order.py",
    ),
    Mutant(
        "the lane of what is lost stays busy",
        "runtime/consume/consumer.py",
        "        self._order.forget(lost)\n        for attempt in waiting:\n"
        "            self._finisher.free(attempt.delivery)\n",
        "        self._order.forget(lost)\n",
        WORKER,
    ),
    # Beginning and ending.
    Mutant(
        "a retry here frees no lane",
        "runtime/consume/finisher.py",
        "        self._take_back(self._order.end(self._failures.disposition_of(attempt, error)))\n"
        "        self.free(attempt.delivery)\n",
        "        self._take_back(self._order.end(self._failures.disposition_of(attempt, error)))\n",
        f"{UNIT}test_harness.py {UNIT}test_local_retries.py {WORKER}",
    ),
    Mutant(
        "what its user settles frees no lane",
        "runtime/consume/finisher.py",
        "        if has_returned:  # else its handler's return frees the lane\n"
        "            self.free(attempt.delivery)\n",
        "",
        WORKER,
    ),
    Mutant(
        "what a batch acknowledges together frees no lane",
        "runtime/consume/finisher.py",
        "        if following := self._order.free(returned):\n",
        "        if following := self._order.free([]):\n",
        f"{UNIT}test_batching_messages.py",
    ),
    Mutant(
        "what a batch acknowledges together is acknowledged though it was settled",
        "runtime/consume/manual_acks.py",
        "                if attempt.settled:\n"
        "                    continue\n"
        "                attempt.begin_ending()\n",
        "                attempt.returned = True\n",
        f"{UNIT}test_batching_messages.py",
    ),
    Mutant(
        "what is given back is passed by what comes behind it",
        "runtime/flow/in_flight.py",
        "            self._returning |= self.deliveries.intersection(deliveries)\n",
        "            pass\n",
        f"{UNIT}test_pull_loop.py",
    ),
    Mutant(
        "what is settled first and not answered is told as lost",
        "runtime/policies/settle_first.py",
        "            self._unanswered.add(attempt.delivery)  # first",
        "            pass  # first",
        f"{UNIT}test_settle_first.py",
    ),
    Mutant(
        "what a user forgets keeps its lane",
        "runtime/consume/finisher.py",
        "self._failures.disposition_of_leaked(delivery)))\n            self.free(delivery)\n",
        "self._failures.disposition_of_leaked(delivery)))\n",
        WORKER,
    ),
    # Stopping.
    Mutant(
        "a slot that has drained waits for the slowest handler of a stop",
        "runtime/process/shutdown.py",
        "            consumer.slots.pass_on()\n",
        "",
        "tests/integration/coordination/test_ownership.py",
    ),
    Mutant(
        "the others are not told that a member retires",
        "coordination/lease.py",
        "for member in roster.members if not member.retiring",
        "for member in roster.members",
        f"{UNIT}test_sharing.py",
    ),
    Mutant(
        "handlers get no grace",
        "runtime/process/shutdown.py",
        "    until_s = clock.monotonic_s() + grace_s\n",
        "    until_s = clock.monotonic_s()\n",
        f"{UNIT}test_shutdown.py {WORKER}",
    ),
    Mutant(
        "what is in hand at the end of the grace is not given back",
        "runtime/consume/consumer.py",
        "        self._order.release(released)\n        self.give_back()",
        "        self.give_back()",
        WORKER,
    ),
    Mutant(
        "a consumer is quiet while attempts change hands",
        "runtime/consume/consumer.py",
        "        return not self.settler.alive or "
        "self.in_flight.deliveries <= self._sender.holds\n",
        "        return True\n",
        WORKER,
    ),
    Mutant(
        "who leaves keeps its slots until its lease ends",
        "coordination/member.py",
        "                self._session.leave()\n",
        "                pass\n",
        MEMBER,
    ),
    # Flow.
    Mutant(
        "room wakes nobody",
        "runtime/flow/in_flight.py",
        "        if rings:\n            self._on_room()\n",
        "",
        UNIT + "test_in_flight.py",
    ),
    Mutant(
        "bytes of what is settled count for ever",
        "runtime/flow/in_flight.py",
        "            self._bytes -= _size(known)\n",
        "",
        UNIT + "test_in_flight.py",
    ),
    Mutant(
        "slow calls are lost among the quick ones of their run",
        "runtime/consume/engine.py",
        "                worker.slow.append(began_s - before_s)\n",
        "                pass\n",
        "tests/integration/consumers/test_measured.py",
    ),
    Mutant(
        "under a checker slow calls are lost among the quick ones of their run",
        "runtime/consume/engine.py",
        "                worker.slow.append(took_s)\n",
        "                pass\n",
        "tests/integration/consumers/test_measured.py",
    ),
    Mutant(
        "what has lost its lease comes again behind what was read since",
        "runtime/feed/pull_loop.py",
        "        if passed := self._passed(pulled):\n            self._receiver.fenced(passed)\n",
        "",
        UNIT + "test_pull_steps.py",
    ),
    Mutant(
        "a slot that was lost is had again under its old epoch",
        "coordination/lease.py",
        "            self.let_go(again)\n            mine =",
        "            mine =",
        UNIT + "test_sharing.py",
    ),
    Mutant(
        "nobody asks again once what was given back has left",
        "runtime/flow/in_flight.py",
        "            rings = has_room or (returned and not self._returning)\n",
        "            rings = has_room\n",
        UNIT + "test_in_flight.py",
    ),
    Mutant(
        "a probe that is lost is waited for",
        "runtime/flow/breaker.py",
        "if self._probe is not None and self._probe not in self._in_flight:",
        "if self._probe is not None and self._probe is None:",
        UNIT + "test_breaker.py",
    ),
    Mutant(
        "settings are not asked for again once the store was away",
        "runtime/process/live_settings.py",
        "            except StoreUnavailable:\n                continue",
        "            except StoreUnavailable:\n                return",
        UNIT + "test_live_settings.py",
    ),
    # Effects.
    Mutant(
        "what another has in hand counts as done",
        "runtime/policies/checked.py",
        "                sorting.waiting.append((attempt, self.wait_s(attempt)))\n"
        "            elif state is State.CLAIMED",
        "                sorting.done.append(attempt)\n            elif state is State.CLAIMED",
        "tests/integration/checkers/test_checkers.py",
    ),
    Mutant(
        "an effect whose mark alone is missing happens again",
        "runtime/policies/marks.py",
        "        sorting.go = [one for one in mine if not one.effect.handled]\n",
        "        sorting.go = mine\n",
        UNIT + "test_late_marks.py",
    ),
    Mutant(
        "the claim of an effect that has happened is renewed for ever",
        "runtime/policies/checked.py",
        "        if claims := _mine(unit):\n            self._claims.let_go(claims)",
        "        if claims := [each for each in _mine(unit) if not each.handled]:\n"
        "            self._claims.let_go(claims)",
        UNIT + "test_claims.py",
    ),
    Mutant(
        "a transaction is committed for what is lost",
        "runtime/consume/finisher.py",
        "        return self._slots.certain() and attempt.delivery in self._in_flight\n",
        "        return True\n",
        "tests/integration/checkers/test_exactly_once.py",
    ),
]
