"""Effects that are marked as done in a server of the checker's, after the handler has returned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from qframe.errors import CheckerUnavailable
from qframe.idempotency.base import Claim, State
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.policies.base import Sorting
from qframe.runtime.policies.checked import CheckerPolicy

STEP: Final = 500


class Marks(CheckerPolicy):
    """Each effect is claimed, with a lease, and marked: many in one call.

    An attempt whose effect has happened, and whose mark alone is missing, is marked and not handled
    again.
    """

    is_joint = False

    def prepare(self, run: list[Attempt]) -> Sorting:
        """Claims in one call; where that fails, each attempt asks in its turn, and is told."""
        with suppress(Exception):
            self._claim([one for one in run if one.effect is None and self._has_key(one)])
        return Sorting(go=run)

    def begin(self, unit: list[Attempt]) -> Sorting:
        """Claims what is not claimed yet."""
        sorting = Sorting()
        unit = self._with_keys(unit, sorting)
        asking = [one for one in unit if one.effect.state not in (State.CLAIMED, State.DONE)]
        for attempt in asking:
            attempt.effect.state = None
        try:
            self._claim(asking)
        except CheckerUnavailable as error:
            self._wait_all([one for one in asking if one.effect.state is None], error, sorting)
        except BaseException as error:  # a checker's fault, which must not end a thread
            unasked = [one for one in asking if one.effect.state is None]
            sorting.failed += [(attempt, error) for attempt in unasked]
        mine = self._sort_out(unit, sorting)
        self._finish([one for one in mine if one.effect.handled], sorting)
        sorting.go = [one for one in mine if not one.effect.handled]
        return sorting

    def end(self, unit: list[Attempt]) -> Sorting:
        """Marks effects as done."""
        sorting = Sorting()
        self._finish(unit, sorting)
        return sorting

    def end_lost(self, attempt: Attempt) -> None:
        """Marks the effect if it can: it has happened, and is not to happen again."""
        claim: Claim | None = attempt.effect
        if claim is None or not claim.is_mine:
            return
        with suppress(CheckerUnavailable):
            self._checker.finish_many(self._scope, [claim])
        self._claims.forget(claim)

    def _has_key(self, attempt: Attempt) -> bool:
        with suppress(Exception):  # it is raised again when it is the attempt's turn
            self._give_claim(attempt)
        return attempt.effect is not None

    def _claim(self, unit: list[Attempt]) -> None:
        for step in _steps(unit):
            try:
                claims = [attempt.effect for attempt in step]
                self._checker.claim_many(self._scope, claims, self._lease_ms)
            finally:  # it may have claimed some, and raised for others
                for attempt in step:
                    if attempt.effect.is_mine:
                        self._claims.keep(attempt.effect)
                        self._tell("delivery.claimed", attempt)

    def _finish(self, unit: list[Attempt], sorting: Sorting) -> None:
        for step in _steps(unit):
            claims: list[Claim] = [attempt.effect for attempt in step]
            self._tell_all("effect.committing", step)
            for claim in claims:
                claim.handled = True
            try:
                kept = self._checker.finish_many(self._scope, claims)
            except CheckerUnavailable as error:
                self._wait_all(step, error, sorting)
                continue
            except BaseException as error:  # a checker's fault, which must not end a thread
                sorting.failed += [(attempt, error) for attempt in step]
                continue
            pairs = list(zip(step, kept, strict=True))
            ended = [attempt for attempt, is_kept in pairs if is_kept]
            for attempt in ended:
                self._claims.forget(attempt.effect)
                attempt.effect.state = State.DONE
            self._tell_all("effect.committed", ended)
            sorting.ended += ended
            if len(ended) < len(step):
                self._claim_anew([attempt for attempt, is_kept in pairs if not is_kept], sorting)

    def _claim_anew(self, unit: list[Attempt], sorting: Sorting) -> None:
        """Other attempts have, or had, these effects; a new token learns what became of them.

        If nobody has the effect, its mark alone is missing.
        """
        for attempt in unit:
            self._claims.forget(attempt.effect)
            again = Claim(attempt.effect.key, self._tokens.new())
            again.handled = True
            attempt.claim(again)
            self._tell("effect.passed", attempt)
        passed = CheckerUnavailable(self._checker.shown, "the claim expired")
        self._wait_all(unit, passed, sorting)


def _steps(unit: list[Attempt]) -> Iterator[list[Attempt]]:
    for start in range(0, len(unit), STEP):
        yield unit[start : start + STEP]
