"""The base of the policies that ask an idempotent checker."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from typing import Any, Final

from qframe.errors import CheckerUnavailable, EffectConflict
from qframe.idempotency.base import Checker, Claim, Scope, State, Tokens
from qframe.idempotency.sweep import EffectSweeper
from qframe.runtime.context import ConsumerContext
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.policies.base import EffectPolicy, Sorting
from qframe.runtime.policies.claims import ClaimRenewal
from qframe.runtime.policies.loop_checker import is_in_loop
from qframe.service import LAST_WORDS_S

FIRST_WAIT_S: Final = 0.02
LONGEST_WAIT_S: Final = 1.0
MAX_RETRIES: Final = 16


class CheckerPolicy(EffectPolicy):
    """Claims effects before a handler is called, and finishes them after.

    Args:
        context: the consumer's.
        checker: its checker.
        scope: of its effects.
    """

    blocks = True

    def __init__(self, context: ConsumerContext, checker: Checker, scope: Scope) -> None:
        self._context = context
        self._checker = checker
        self._scope = scope
        self._lease_ms = context.options.lease_ms
        self._tokens = Tokens()
        self.in_loop: bool = is_in_loop(checker)
        # Threads take turns by runs, not by messages: to hand a turn over costs as much as one.
        self.turns: threading.Lock | None = None
        self._claims = ClaimRenewal(context, checker, scope)
        self._sweeper = EffectSweeper(
            context.name_of("effects"), checker,
            on_trouble=self._tell_trouble, on_failure=context.fail,
        )  # fmt: skip

    def start(self) -> None:
        """Makes the checker ready, and starts what renews and sweeps."""
        self._checker.open()
        self.turns = getattr(self._checker, "runs", None)
        self._claims.start()
        self._sweeper.start()

    def stop(self) -> None:
        """Releases what was let go; what is still claimed passes with its lease."""
        self._claims.stop(LAST_WORDS_S)
        self._sweeper.stop(LAST_WORDS_S)

    def release_now(self) -> None:
        """Releases what was let go, where no thread does it in the background."""
        self._claims.release_let_go()

    def give_up(self) -> None:
        """Releases all claims, where nobody waits for their leases."""
        self._claims.let_go_all()
        self._claims.ask_to_stop()
        self._claims.run()  # its last round

    def retries(self, unit: list[Attempt], error: BaseException) -> Sorting | None:
        """When to call the handler again, if its error was its transaction's, and may pass."""
        why = self._checker.passing(error)
        if why is None or any(
            one.overdue or one.effect.passes >= MAX_RETRIES for one in unit if one.effect
        ):
            return None
        self.release(unit)
        sorting = Sorting()
        for attempt in unit:
            attempt.effect.passes += 1
        self._wait_all(unit, why, sorting)
        return sorting

    def release(self, unit: list[Attempt]) -> None:
        """Makes effects absent again, and what their transactions have changed undone."""
        if claims := _mine(unit):
            self._claims.release(claims)

    def refuse(self, unit: list[Attempt]) -> None:
        """Releases effects that must not happen here any more."""
        self.release(unit)
        self._tell_all("effect.refused", unit)

    def let_go(self, unit: list[Attempt]) -> None:
        """Releases effects, or marks those that have happened, without making the caller wait."""
        if claims := _mine(unit):
            self._claims.let_go(claims)

    def forget(self, effect: Any) -> None:
        """Releases the claim of an attempt that its user has let go."""
        if effect is not None:
            self._claims.release([effect])

    def wait_s(self, attempt: Attempt) -> float:
        """The next wait of an attempt; each is longer, up to a second."""
        claim: Claim = attempt.effect
        bound_s: float = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(claim.waits, 16))
        claim.waits += 1
        return bound_s * random.uniform(0.5, 1)  # noqa: S311 - jitter, no secret

    # For its children.

    def _with_keys(self, unit: list[Attempt], sorting: Sorting) -> list[Attempt]:
        """Gives attempts their claims; of two with the same effect the second one waits."""
        found: dict[str, Attempt] = {}
        for attempt in unit:
            if attempt.effect is None:
                try:
                    self._give_claim(attempt)
                except BaseException as error:  # its own fault, and no other one's
                    sorting.failed.append((attempt, error))
                    continue
            if found.setdefault(attempt.effect.key, attempt) is not attempt:
                self._tell("delivery.awaited", attempt)
                sorting.waiting.append((attempt, self.wait_s(attempt)))
        return list(found.values())

    def _give_claim(self, attempt: Attempt) -> None:
        attempt.claim(Claim(self._checker.key(attempt), self._tokens.new()))

    def _sort_out(self, unit: list[Attempt], sorting: Sorting) -> list[Attempt]:
        """Returns the claimed attempts; sorts out those done before and those claimed elsewhere."""
        mine = []
        for attempt in unit:
            state = attempt.effect.state
            if state is State.DONE:
                self._tell("delivery.duplicate", attempt)
                sorting.done.append(attempt)
            elif state is State.RUNNING:
                self._tell("delivery.awaited", attempt)
                sorting.waiting.append((attempt, self.wait_s(attempt)))
            elif state is State.CLAIMED:
                attempt.effect.waits = 0
                mine.append(attempt)
        return mine

    def _wait_all(self, unit: Iterable[Attempt], why: CheckerUnavailable, sorting: Sorting) -> None:
        """Has attempts wait for the checker."""
        waiting = [(attempt, self.wait_s(attempt)) for attempt in unit]
        sorting.waiting += waiting
        if waiting:
            self._tell_trouble(why)

    def _tell_trouble(self, why: CheckerUnavailable) -> None:
        name = "effect.conflict" if isinstance(why, EffectConflict) else "checker.unavailable"
        self._context.emit(name, error=str(why), part=self._checker.shown)

    def _tell_all(self, name: str, unit: Iterable[Attempt]) -> None:
        if self._context.events:
            for attempt in unit:
                self._tell(name, attempt)

    def _tell(self, name: str, attempt: Attempt) -> None:
        if self._context.events:
            it = attempt.delivery
            self._context.emit(name, id=it.id, key=it.key, attempt=it.attempt)


def _mine(unit: list[Attempt]) -> list[Claim]:
    claims = [attempt.effect for attempt in unit]
    return [claim for claim in claims if claim is not None and claim.is_mine]
