"""Keeps the claims of what is in hand."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from qframe.errors import CheckerUnavailable
from qframe.idempotency.base import Checker, Claim, Scope
from qframe.runtime.context import ConsumerContext
from qframe.runtime.renewal import renewed_in_s
from qframe.service import Service

STEP: Final = 500


class ClaimRenewal(Service):
    """Renews the claims that messages hold; releases those given up.

    Args:
        context: the consumer's.
        checker: whose claims.
        scope: of the consumer's effects.
    """

    def __init__(self, context: ConsumerContext, checker: Checker, scope: Scope) -> None:
        super().__init__(context.name_of("claims"), context.fail)
        self._context = context
        self._checker = checker
        self._scope = scope
        self._lease_ms = context.options.lease_ms
        self._clock = context.clock
        self._awake = threading.Event()
        self._claims: set[Claim] = set()
        self._leaving: list[Claim] = []
        self._claims_guard = threading.Lock()

    def keep(self, claim: Claim) -> None:
        """Renews a claim from now on."""
        with self._claims_guard:
            self._claims.add(claim)

    def forget(self, claim: Claim) -> None:
        """Leaves a claim alone from now on."""
        with self._claims_guard:
            self._claims.discard(claim)

    def release(self, claims: Iterable[Claim]) -> None:
        """Releases claims now; one of which the checker cannot be told passes with its lease."""
        if released := list(claims):
            with self._claims_guard:
                self._claims.difference_update(released)
            with suppress(CheckerUnavailable):
                self._checker.release_many(self._scope, released)
            for claim in released:
                claim.state = None

    def let_go(self, claims: list[Claim]) -> None:
        """Releases claims soon; who gives them up need not wait."""
        with self._claims_guard:
            self._claims.difference_update(claims)
            self._leaving += claims
        self._awake.set()

    def let_go_all(self) -> None:
        """Releases all claims soon."""
        with self._claims_guard:
            self._leaving += self._claims
            self._claims.clear()
        self._awake.set()

    def wake(self) -> None:
        """Ends the wait for the next round."""
        self._awake.set()

    def run(self) -> None:
        """A round whenever one is due; a last one releases what is left."""
        due_s = self._clock.monotonic_s() + renewed_in_s(self._lease_ms, was_answered=True)
        while True:
            self._awake.wait(max(0.0, due_s - self._clock.monotonic_s()))
            self._awake.clear()
            is_last = self.stopping
            self.release_let_go()
            if is_last:
                return
            if self._clock.monotonic_s() >= due_s:
                started_s = self._clock.monotonic_s()
                with self._claims_guard:
                    claims = list(self._claims)
                was_answered = True
                for start in range(0, len(claims), STEP):
                    was_answered &= self._renew(claims[start : start + STEP])
                due_s = started_s + renewed_in_s(self._lease_ms, was_answered=was_answered)

    def release_let_go(self) -> None:
        """Releases what was let go, or marks it, where its effect has happened.

        A claim that can be neither released nor marked passes with its lease.
        """
        with self._claims_guard:
            leaving, self._leaving = self._leaving, []
        happened = [claim for claim in leaving if claim.handled]
        others = [claim for claim in leaving if not claim.handled]
        with suppress(CheckerUnavailable):
            for start in range(0, len(happened), STEP):
                self._checker.finish_many(self._scope, happened[start : start + STEP])
        with suppress(CheckerUnavailable):
            for start in range(0, len(others), STEP):
                self._checker.release_many(self._scope, others[start : start + STEP])

    def _renew(self, claims: list[Claim]) -> bool:
        """Renews claims; returns whether the checker has answered.

        One that passes meanwhile is noticed at its end.
        """
        try:
            renewed: Any = self._checker.renew_many(self._scope, claims, self._lease_ms)
        except CheckerUnavailable:
            return False
        with self._claims_guard:
            passed = [
                claim for claim, kept in zip(claims, renewed, strict=True)
                if not kept and claim in self._claims
            ]  # fmt: skip
            self._claims.difference_update(passed)
        if passed:
            self._context.emit("effect.passed", count=len(passed))
        return True
