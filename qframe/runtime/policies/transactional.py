"""Effects that happen in one transaction of their unit, marks included."""

from __future__ import annotations

from qframe.errors import CheckerUnavailable
from qframe.idempotency.base import State
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.policies.base import Sorting
from qframe.runtime.policies.checked import CheckerPolicy


class Transactional(CheckerPolicy):
    """A unit has one transaction, with the marks of those that are handled in it and no others."""

    is_joint = True

    def prepare(self, run: list[Attempt]) -> Sorting:
        """Asks for nothing: the transactions of a run follow each other."""
        return Sorting(go=run)

    def begin(self, unit: list[Attempt]) -> Sorting:
        """Begins the transaction of those that can be had; the others are not in it."""
        sorting = Sorting()
        unit = self._with_keys(unit, sorting)
        try:
            self._claim(unit)
        except CheckerUnavailable as error:
            self._wait_all(unit, error, sorting)
            return sorting
        except BaseException as error:  # a checker's fault, which must not end a thread
            sorting.failed += [(attempt, error) for attempt in unit]
            return sorting
        sorting.go = self._sort_out(unit, sorting)
        self._tell_all("delivery.claimed", sorting.go)
        return sorting

    def end(self, unit: list[Attempt]) -> Sorting:
        """Commits.

        Raises:
            Exception: what the commit has raised; it counts as the handler's own error.
        """
        self._tell_all("effect.committing", unit)
        try:
            self._checker.finish_many(self._scope, [attempt.effect for attempt in unit])
        except CheckerUnavailable as error:
            sorting = Sorting()
            self._wait_all(unit, error, sorting)
            return sorting
        for attempt in unit:
            attempt.effect.state = State.DONE
        self._tell_all("effect.committed", unit)
        return Sorting(ended=unit)

    def end_lost(self, attempt: Attempt) -> None:
        """Rolls the effect back: another worker is to do it."""
        if attempt.effect is not None and attempt.effect.is_mine:
            self.refuse([attempt])

    def _claim(self, unit: list[Attempt]) -> None:
        claims = [attempt.effect for attempt in unit if attempt.effect.state is not State.DONE]
        for claim in claims:
            claim.state = None
        if len(claims) == 1:
            self._checker.claim_many(self._scope, claims, self._lease_ms)
        elif claims:
            self._checker.claim_together(self._scope, claims)  # type: ignore[attr-defined] # joint ones have it
