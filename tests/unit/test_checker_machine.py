"""Every checker does what a dictionary does, in whatever order its calls come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checking import MARKING, REDIS, checker_of, new_scope
from eventually import eventually
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    multiple,
    rule,
    run_state_machine_as_test,
)

from qframe.idempotency.base import Claim, Scope, State

pytestmark = pytest.mark.promise(2)

LONG_MS = 600_000
KEYS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)


class Machine(RuleBasedStateMachine):
    """A checker beside a model: for each key its state, and the token that has it."""

    claims = Bundle("claims")

    def __init__(self, checker: Any) -> None:
        super().__init__()
        self.checker = checker
        self.scope: Scope = new_scope()
        self.model: dict[str, tuple[State, str]] = {}

    @rule(target=claims, keys=KEYS)
    def claim(self, keys: list[str]) -> Any:
        made = [Claim(key) for key in keys]
        self.checker.claim_many(self.scope, made, LONG_MS)
        for claim in made:
            assert claim.state is self.expected(claim)
        return multiple(*made)

    @rule(claim=claims)
    def claim_again(self, claim: Claim) -> None:
        """As after an answer that was lost."""
        self.checker.claim_many(self.scope, [claim], LONG_MS)
        assert claim.state is self.expected(claim)

    @rule(claims=st.lists(claims, min_size=1, max_size=4, unique_by=id))
    def finish(self, claims: list[Claim]) -> None:
        answers = self.checker.finish_many(self.scope, claims)
        assert answers == [self.holds(claim, State.RUNNING, State.DONE) for claim in claims]
        for claim, finished in zip(claims, answers, strict=True):
            if finished:
                self.model[claim.key] = (State.DONE, claim.token)

    @rule(claims=st.lists(claims, min_size=1, max_size=4, unique_by=id))
    def release(self, claims: list[Claim]) -> None:
        answers = self.checker.release_many(self.scope, claims)
        assert answers == [self.holds(claim, State.RUNNING) for claim in claims]
        for claim, released in zip(claims, answers, strict=True):
            if released:
                del self.model[claim.key]

    @rule(claims=st.lists(claims, min_size=1, max_size=4, unique_by=id))
    def renew(self, claims: list[Claim]) -> None:
        answers = self.checker.renew_many(self.scope, claims, LONG_MS)
        assert answers == [self.holds(claim, State.RUNNING) for claim in claims]

    @rule(target=claims, claim=claims)
    def take_over(self, claim: Claim) -> Any:
        """Its lease passes, and the next one has it."""
        if not self.holds(claim, State.RUNNING):
            return multiple()
        self.checker.renew_many(self.scope, [claim], 1)
        following = Claim(claim.key)

        def has_passed() -> bool:
            self.checker.claim_many(self.scope, [following], LONG_MS)
            return following.state is State.CLAIMED

        eventually(has_passed)
        self.model[claim.key] = (State.RUNNING, following.token)
        return following

    def expected(self, claim: Claim) -> State:
        """What the model answers to a claim; it does the same."""
        state, token = self.model.setdefault(claim.key, (State.RUNNING, claim.token))
        if state is State.RUNNING and token == claim.token:
            return State.CLAIMED
        return state

    def holds(self, claim: Claim, *states: State) -> bool:
        state, token = self.model.get(claim.key, (None, ""))
        return state in states and token == claim.token


@pytest.mark.parametrize("name", dict.fromkeys(REDIS + MARKING))
def test_a_checker_is_a_dictionary_of_three_states(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    with checker_of(request, name, tmp_path) as checker:
        run_state_machine_as_test(
            lambda: Machine(checker),
            settings=settings(
                max_examples=25, stateful_step_count=25, deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )  # fmt: skip
