"""A line whose consumer has an idempotent checker: each message's effect is claimed and ended."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from qframe.errors import CheckerUnavailable, EffectConflict, NotSupported
from qframe.idempotency.base import Checker, Claim, Scope, State, Tokens
from qframe.idempotency.sweep import EffectSweeper
from qframe.message import Delivery, Message
from qframe.runtime.consume.line import Line
from qframe.runtime.executors.pool import Hand
from qframe.runtime.handler.binding import check_answer
from qframe.runtime.policies.claims import ClaimRenewal
from qframe.runtime.policies.loop_checker import is_in_loop
from qframe.runtime.policies.run_claims import RunClaims

FIRST_WAIT_S: Final = 0.02
LONGEST_WAIT_S: Final = 1.0
TURN_S: Final = 1.0
MAX_PASSING: Final = 16
RETURN: Final = "return from the handler to commit, or raise"
_LAST_WORDS_S: Final = 5.0


class _Refused(Exception):
    """Raised where a cancelled delivery's transaction was to be committed."""


class CheckedLine(Line):
    """A line that asks its checker before a handler and tells it after; see `qframe.idempotency`.

    A message that has to wait (its effect is running, its checker away) waits here, its lane with
    it, its lease renewed: that costs no attempt and keeps its key's order.

    Args:
        checker: the consumer's.
        scope: whose effects.
        line: the arguments of `Line`.
    """

    def __init__(self, *, checker: Checker, scope: Scope, **line: Any) -> None:
        super().__init__(**line)
        self._scope = scope
        self._tokens = Tokens()
        self._lease_ms = self._options.lease_ms
        self._checker = checker
        # By runs threads take turns, not by messages: to hand one over costs as much as a message.
        self._runs: threading.Lock | None = None
        self._is_in_loop = is_in_loop(checker)
        on_failure = line["on_failure"]
        self._time_limit.is_measured = True
        self._ending: list[Message] = []
        self._claims = ClaimRenewal(
            checker=checker, scope=scope, lease_ms=self._lease_ms, events=self._events,
            clock=self._clock, on_failure=on_failure,
        )  # fmt: skip
        self._run_claims = RunClaims(
            checker=self._checker, scope=scope, lease_ms=self._lease_ms, claims=self._claims,
            new_claim=self._new_claim, tell=self._tell,
        )  # fmt: skip
        self._effect_sweeper = EffectSweeper(
            f"qframe.effects.{self.topic}.{self.group}", checker, on_failure
        )

    def start(self) -> None:
        """Makes the checker ready, and starts all parts."""
        self._checker.open()
        self._runs = getattr(self._checker, "runs", None)
        self._claims.start()
        self._effect_sweeper.start()
        super().start()

    def leave(self) -> None:
        """Gives its slots up; what is still claimed passes by its lease."""
        super().leave()
        self._claims.stop(_LAST_WORDS_S)
        self._effect_sweeper.stop(_LAST_WORDS_S)

    def handle(self, hand: Hand) -> None:
        """Claims, calls the handler and finishes, for each message of a run."""
        if (runs := self._runs) is None:
            self._handle_run(hand)
            return
        started_s = self._clock.monotonic_s()
        has_turn = runs.acquire(timeout=TURN_S)
        hand.waited_s += self._clock.monotonic_s() - started_s
        try:
            self._handle_run(hand)
        finally:
            if has_turn:
                runs.release()

    def _handle_run(self, hand: Hand) -> None:
        if len(hand.run) > 1 and not self._checker.is_transactional:
            self._run_claims.ask(hand)
        while True:
            try:
                message = hand.run.popleft()
            except IndexError:
                hand.message = None
                return
            hand.message = message
            if message.settled:  # it was given back while its claim was asked for
                self._release(message)
                self._free(message.delivery)
            elif self._may_begin(message) and self._guarded(message, self._handled):
                message.settled = True
                hand.done.append(message.delivery)
            hand.message = message = None  # type: ignore[assignment] # let it go
            hand.handled += 1

    def _handled(self, message: Message) -> bool:
        """Whether a message is to be acknowledged now: it was handled, or had been before."""
        if not self._claimed(message):
            return message.effect.state is State.DONE
        if not message.effect.handled:
            self._check_it_is_mine(message)
            if not self._called(message):
                return False
        self._finish(message)
        self.flow.succeeded([message.delivery])
        return True

    def _check_it_is_mine(self, message: Message) -> None:
        """Lets go of a claimed message that was lost meanwhile: claiming may have taken long.

        Raises:
            _Refused: if it is not this worker's any more.
        """
        if not self._is_mine(message):
            self._release(message)
            raise _Refused

    def _guarded(self, message: Message, step: Callable[[Message], bool]) -> bool:
        """Takes a step with a message; what it raises becomes the message's fate."""
        try:
            return step(message)
        except CheckerUnavailable as error:
            self._wait(message, error)
        except _Refused:
            message.settled = True
            self._free(message.delivery)
        except BaseException as error:  # a handler's SystemExit must not end a thread
            self._failed(message, error)
        return False

    def _called(self, message: Message) -> bool:
        """Calls the handler; answers whether its effect is to be finished now."""
        try:
            if self._options.timeout is None:
                answer = self.flow.handler(message)
            else:
                with self._time_limit.running(message):
                    answer = self.flow.handler(message)
            if answer is not None:
                check_answer(answer)
        except BaseException as error:
            self._failed(message, error)
            return False
        return self._may_finish(message)

    def _may_finish(self, message: Message) -> bool:
        """Whether a message's effect is to be finished, now that its handler has returned."""
        if message.overdue and not message.settled:
            self._failed(message, self._time_limit.error_of(message))
            return False
        if message.auto_ack and not message.settled:
            return True
        if self._is_in_loop and not message.settled:
            why = NotSupported("auto_ack = False in an AsyncSession's transaction", RETURN)
            self._failed(message, why)
        else:
            self._returned(message)
        return False

    def _new_claim(self, message: Message) -> Claim:
        return Claim(self._checker.key(message), self._tokens.new())

    def _claimed(self, message: Message) -> bool:
        """Whether the effect is this message's; if it is another's, the message waits."""
        claim = message.effect
        if claim is None:
            claim = message.effect = self._new_claim(message)
        if claim.is_mine:
            return True
        if claim.state is State.DONE:
            self._tell("delivery.duplicate", message)
            return False
        self._checker.claim_many(self._scope, [claim], self._lease_ms)
        if claim.state is State.CLAIMED:
            claim.waits = 0
            if not self._checker.is_transactional:
                self._claims.keep(claim)
            self._tell("delivery.claimed", message)
            return True
        if claim.state is State.RUNNING:
            self._tell("delivery.awaited", message)
            self._wait(message)
        else:
            self._tell("delivery.duplicate", message)
        return False

    def _finish(self, message: Message) -> None:
        """Marks the effect as done; under a transaction, together with all that it has changed.

        Raises:
            _Refused: if the delivery is not this worker's any more; all was rolled back.
            CheckerUnavailable: if it is to be tried again.
            Exception: what the commit raised, as the handler's own error.
        """
        claim: Claim = message.effect
        if self._checker.is_transactional and not self._is_mine(message):
            self._release(message)
            self._tell("effect.refused", message)
            raise _Refused
        self._tell("effect.committing", message)
        claim.handled = not self._checker.is_transactional
        [kept] = self._checker.finish_many(self._scope, [claim])
        if not self._is_marked(message, kept):
            raise CheckerUnavailable(self._checker.shown, "the claim expired")
        self._tell("effect.committed", message)

    def _is_marked(self, message: Message, kept: bool) -> bool:
        """Whether an effect is marked as done; if its claim was not kept, it has another one."""
        claim: Claim = message.effect
        self._claims.forget(claim)
        if kept:
            claim.state = State.DONE
            return True
        # Another one has it, or had it. Who asks again, under a new token, learns what became of
        # it, and if it is absent the mark is all that is missing.
        again = Claim(claim.key, self._tokens.new())
        again.handled = True
        with self._custody.guard:  # a handler may return just now
            again.returned, message.effect = claim.returned, again
        self._tell("effect.passed", message)
        return False

    def _is_mine(self, message: Message) -> bool:
        """Whether nobody else can have the message yet, as far as this worker knows."""
        cancelled = message.cancelled and not message.overdue
        return not cancelled and self.slots.certain() and message.delivery in self.in_flight

    def acknowledge(
        self, message: Message, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        """Ends the effect, in the caller's thread, then settles the message.

        Raises:
            AlreadySettled: if it is settled already.
            NotSupported: if the effect's transaction has to be awaited.
            Exception: what the commit raised; it counts as the handler's own error.
        """
        if self._is_in_loop:
            raise NotSupported("message.ack() in an AsyncSession's transaction", RETURN)
        self._ending.append(message)  # before it is settled, so that a handler's return sees it
        try:
            returned = self._custody.settle(message)
        except BaseException:
            self._ending.remove(message)
            raise
        problem: BaseException | None = None
        try:
            if error is not None:
                self._release(message)
            else:
                self._finish(message)
        except BaseException as raised:
            problem = raised
        with self._custody.guard:
            self._ending.remove(message)
            returned = returned or message.effect.returned
            # While its handler still runs, its return sees to it.
            message.effect.asked = isinstance(problem, CheckerUnavailable) and not returned
        if isinstance(problem, CheckerUnavailable):
            if returned:
                self._wait(message, problem)
        elif isinstance(problem, _Refused):
            if returned:
                self._free(message.delivery)
        elif problem is not None:
            self._release(message)
            self._settle(message, returned, elapsed_s, problem)
            raise problem
        else:
            self._settle(message, returned, elapsed_s, error)

    def is_quiet(self) -> bool:
        """Whether nothing is in hand, nor being ended by its user's `ack`."""
        return not self._ending and super().is_quiet()

    def abandon(self) -> None:
        """Gives back, uncounted, what handlers have in hand still; none of it is committed."""
        if self._checker.is_transactional:
            kept = list(self._custody)
            for message in kept:
                message.cancelled = True
            self._withdrawn(kept)
        super().abandon()

    def _returned(self, message: Message) -> None:
        claim: Claim = message.effect
        if self._is_left_to_its_end(message):
            return
        if claim.is_mine and message.settled:  # given back while its handler ran on
            self._end_unsettled(message)
        super()._returned(message)

    def _failed(self, message: Message, error: BaseException) -> None:
        claim: Claim | None = message.effect
        if claim is not None and self._is_left_to_its_end(message):
            return
        if claim is not None and claim.is_mine:
            passes = self._checker.passing(error)
            may_pass = claim.passes < MAX_PASSING and not message.overdue
            if self._checker.is_transactional or not self._retries_here(message, error):
                self._release(message)
            if passes is not None and may_pass and not message.settled:
                claim.passes += 1
                self._wait(message, passes)
                return
        super()._failed(message, error)

    def _settled_elsewhere(self, message: Message) -> None:
        if message.effect is None or not self._is_left_to_its_end(message):
            super()._settled_elsewhere(message)

    def _is_left_to_its_end(self, message: Message) -> bool:
        """Whether an acknowledgement, under way or to be repeated, sees to a handler's message."""
        claim: Claim = message.effect
        with self._custody.guard:
            if not message.settled:
                return False
            if message in self._ending:
                claim.returned = True
                return True
            if not claim.asked:
                return False
        self._wait(message)
        return True

    def _end_unsettled(self, message: Message) -> None:
        """What was given back is not to be done again, if it is done already and can be marked."""
        if self._checker.is_transactional:
            self._release(message)
            self._tell("effect.refused", message)
            return
        with suppress(CheckerUnavailable):
            self._checker.finish_many(self._scope, [message.effect])
        self._claims.forget(message.effect)

    def _on_leaked(self, delivery: Delivery) -> None:
        if (claim := self._custody.effect_of(delivery)) is not None:
            self._claims.release([claim])
        super()._on_leaked(delivery)

    def _withdrawn(self, messages: list[Message]) -> None:
        """In another thread, since whoever tells of a loss must not wait for the checker."""
        claims = [message.effect for message in messages if message.effect is not None]
        if mine := [claim for claim in claims if claim.is_mine and not claim.handled]:
            self._claims.let_go(mine)

    def _wait(self, message: Message, why: CheckerUnavailable | None = None) -> None:
        """Hands a message to its handler again, after a pause that grows."""
        claim: Claim = message.effect
        if why is not None and self._events:
            name = "effect.conflict" if isinstance(why, EffectConflict) else "checker.unavailable"
            self._events.emit(
                name, topic=self.topic, group=self.group, error=str(why), part=self._checker.shown
            )
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(claim.waits, 16))
        claim.waits += 1
        claim.asked = claim.returned = False
        message.settled = False
        if message.overdue:
            message.overdue = message.cancelled = False
        message.auto_ack = self._options.auto_ack
        self.flow.parked([message.delivery])
        self._set_aside(message, wait_s * random.uniform(0.5, 1))  # noqa: S311 - jitter, no secret

    def _release(self, message: Message) -> None:
        """Makes the effect absent again, and what its transaction has changed undone."""
        if message.effect is not None and message.effect.is_mine:
            self._claims.release([message.effect])

    def _tell(self, name: str, message: Message) -> None:
        if self._events:
            it = message.delivery
            self._events.emit(
                name, topic=self.topic, group=self.group, id=it.id, key=it.key, attempt=it.attempt
            )
