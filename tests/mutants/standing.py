"""Faults about pulls that stand in the store, and the replies to them."""

from __future__ import annotations

from typing import Final

from mutants.mutant import KEEPING, PULL, Mutant, conforms

STANDING: Final = [
    Mutant(
        "nothing is revoked where replies may have been lost",
        "runtime/feed/pull_loop.py",
        "            if self._bell.has_lost():\n                self._unanswered.end_standing()\n",
        "",
        PULL,
    ),
    Mutant(
        "what came before replies were lost is thrown away",
        "runtime/feed/pull_loop.py",
        "            for reply in late:\n                self._take_reply(reply)\n"
        "            if self._bell.has_lost():\n"
        "                self._unanswered.end_standing()\n",
        "            if self._bell.has_lost():\n"
        "                self._unanswered.end_standing()\n"
        "                return\n            for reply in late:\n"
        "                self._take_reply(reply)\n",
        PULL,
    ),
    Mutant(
        "who was relieved goes on pulling beside another",
        "service.py",
        "        if is_relieved:\n            raise Relieved\n",
        "",
        KEEPING,
    ),
    Mutant(
        "a handler in the thread that pulls keeps all else from being pulled",
        "runtime/executors/thread_executor.py",
        "                if worker is self._kept and self._relieve_puller is not None:\n"
        "                    self._relieve_puller()\n",
        "",
        KEEPING,
    ),
    Mutant(
        "what is handled in the thread that pulls counts as none of the threads",
        "runtime/executors/thread_executor.py",
        "            while self._kept.works and self._taken >= self._threads.size:\n"
        "                self._place_left.wait(TICK_S)\n",
        "",
        KEEPING,
    ),
    Mutant(
        "what is kept for the thread that pulls cannot be given back",
        "runtime/executors/thread_executor.py",
        "        for worker in self._workers():\n            attempts += _drain(worker.run)\n",
        "        for worker in self._threads.workers:\n"
        "            attempts += _drain(worker.run)\n",
        KEEPING,
    ),
    Mutant(
        "a bell for others has a loop sleep on beside what it is to revoke",
        "runtime/feed/pull_loop.py",
        "self._slots.has_unread or self._unanswered.in_doubt:",
        "self._slots.has_unread:",
        PULL,
    ),
    Mutant(
        "pulls stand on in slots that are another's",
        "runtime/feed/pull_loop.py",
        "        if unanswered.end_standing(planner.owned):\n            return None\n",
        "",
        PULL,
    ),
    Mutant(
        "a loop that rests takes no replies",
        "runtime/feed/pull_loop.py",
        "        self._planner.woken(hints)\n        if self._in_flight.expected:\n"
        "            self._take_late()\n",
        "        self._planner.woken(hints)\n",
        PULL,
    ),
    Mutant(
        "a reply that comes behind those to the next pulls is dropped",
        "runtime/feed/pull_loop.py",
        "        else:\n            self._unanswered.doubt([ask], receipt)\n",
        "        elif has_stood:\n            self._unanswered.doubt([ask], receipt)\n",
        PULL,
    ),
    Mutant(
        "a reply is taken over that its stream has given back by position",
        "runtime/feed/unanswered_pulls.py",
        "if is_stream and pull.slot in slots",
        "if False",
        PULL,
    ),
    Mutant(
        "a reply that comes while its slot is asked again is dropped",
        "runtime/feed/unanswered_pulls.py",
        "[*before[-1:], StandingPlace(ask.slot, ask.epoch, receipt)]",
        "[StandingPlace(ask.slot, ask.epoch, receipt)]",
        PULL,
    ),
    Mutant(
        "room is kept for replies that have come",
        "runtime/feed/unanswered_pulls.py",
        "            self._replaced = deque(left, maxlen=MOST_REPLACED)\n        self._note()\n",
        "            self._replaced = deque(left, maxlen=MOST_REPLACED)\n",
        PULL,
    ),
    Mutant(
        "what a pull was answered with that others replaced is not revoked",
        "runtime/feed/unanswered_pulls.py",
        "self._replaced += [(self._clock.monotonic_s(), pull) for pull in before[:-1]]",
        "pass",
        PULL,
    ),
    Mutant(
        "a pull that was answered stands on",
        "stores/model/standing.py",
        "        state.slots[entry.slot].asleep.clear()\n",
        "        pass\n",
        conforms("standing", "model", "once"),
    ),
    Mutant(
        "the model hands out what is published before what has come due",
        "stores/model/standing.py",
        "is_over = pull.until_ms is not None and pull.until_ms <= now_ms",
        "is_over = False",
        conforms("standing", "model", "due_meanwhile"),
    ),
]
