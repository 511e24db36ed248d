"""The claims of what is in hand are kept, and what is given up is released."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checking import engine_of, new_scope
from contexts import context_of
from eventually import eventually
from late import Late, loses

from qframe.clock import VirtualClock
from qframe.errors import CheckerUnavailable
from qframe.events import Events
from qframe.idempotency.base import Claim, State
from qframe.idempotency.database import DatabaseChecker
from qframe.runtime.policies.claims import ClaimRenewal
from qframe.runtime.policies.marks import Marks

LEASE_MS = 600_000
AWAY = CheckerUnavailable("checker", "away")


class Bench:
    """A keeper of claims, its checker, and what it has told."""

    def __init__(self, checker: DatabaseChecker) -> None:
        self.checker: Any = Late(checker)
        self.scope = new_scope()
        self.told: list[tuple[str, int]] = []
        events = Events()
        events.listen(lambda name, facts: self.told.append((name, facts["count"])))
        self.claims = ClaimRenewal(
            context_of(events=events, lease=LEASE_MS / 1000), self.checker, self.scope
        )

    def claimed(self, key: str, token: str = "t-1") -> Claim:
        claim = Claim(key, token)
        self.checker.claim_many(self.scope, [claim], LEASE_MS)
        return claim

    def is_free(self, key: str) -> bool:
        """Whether another one can claim it; it does then."""
        return self.claimed(key, "another").state is State.CLAIMED


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with engine_of(f"sqlite:///{tmp_path}/effects.db") as engine:
        checker = DatabaseChecker(engine)
        checker.open()
        made = Bench(checker)
        yield made
        assert made.claims.stop(60)


def test_what_is_given_up_is_released_at_once_and_not_at_the_next_renewal(bench: Bench) -> None:
    one = bench.claimed("a")
    bench.claims.keep(one)
    bench.claims.start()
    bench.claims.let_go([one])
    eventually(lambda: bench.is_free("a"))


def test_an_effect_that_has_happened_and_is_given_up_is_marked_and_not_renewed(
    bench: Bench,
) -> None:
    """Else its message waits for ever in the worker that has it next: found by simulation."""
    one = bench.claimed("a")
    one.handled = True
    bench.claims.keep(one)
    bench.claims.let_go([one])
    bench.claims.release_let_go()
    assert bench.claimed("a", "another").state is State.DONE
    assert bench.claims._claims == set()


def test_a_policy_that_gives_up_an_effect_that_has_happened_has_it_marked(bench: Bench) -> None:
    policy = Marks(context_of(lease=LEASE_MS / 1000), bench.checker, bench.scope)
    one, other = bench.claimed("a"), bench.claimed("b")
    one.handled = True
    for claim in (one, other):
        policy._claims.keep(claim)
    unit: Any = [SimpleNamespace(effect=claim) for claim in (one, other, None)]
    policy.let_go(unit)
    policy.release_now()
    assert policy._claims._claims == set()
    assert bench.claimed("a", "another").state is State.DONE
    assert bench.is_free("b")


def test_an_effect_that_has_happened_and_cannot_be_marked_passes_with_its_lease(
    bench: Bench,
) -> None:
    one = bench.claimed("a")
    one.handled = True
    bench.claims.keep(one)
    bench.claims.let_go([one])
    bench.checker.before("finish_many", loses(AWAY))
    bench.claims.release_let_go()
    assert bench.claimed("a", "another").state is State.RUNNING
    assert bench.claims._claims == set()


def test_what_is_given_up_as_it_ends_is_released_before_it_has_ended(bench: Bench) -> None:
    one = bench.claimed("a")
    bench.claims.start()
    bench.claims._leaving.append(one)  # and nobody has woken it yet
    assert bench.claims.stop(60)
    assert bench.is_free("a")


def test_a_claim_that_was_finished_while_it_was_renewed_has_not_passed(bench: Bench) -> None:
    done, gone = bench.claimed("done"), bench.claimed("gone")

    def meanwhile() -> None:
        bench.checker.finish_many(bench.scope, [done])
        bench.claims.forget(done)
        bench.checker.release_many(bench.scope, [gone])

    for each in (done, gone):
        bench.claims.keep(each)
    bench.checker.before("renew_many", meanwhile)
    bench.claims._renew([done, gone])
    assert bench.told == [("effect.passed", 1)]
    assert bench.claims._claims == set()


@pytest.mark.parametrize("lost", ["before", "after"])
def test_claims_that_cannot_be_renewed_now_are_renewed_the_next_time(
    bench: Bench, lost: str
) -> None:
    one = bench.claimed("a")
    bench.claims.keep(one)
    getattr(bench.checker, lost)("renew_many", loses(AWAY))
    bench.claims._renew([one])
    assert bench.claims._claims == {one}
    assert bench.told == []
    bench.claims._renew([one])
    assert bench.told == []


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_claim_of_whose_release_the_checker_cannot_be_told_is_kept_no_longer(
    bench: Bench, lost: str
) -> None:
    one = bench.claimed("a")
    bench.claims.keep(one)
    getattr(bench.checker, lost)("release_many", loses(AWAY))
    bench.claims.release([one])
    assert one.state is None
    assert bench.claims._claims == set()
    assert bench.is_free("a") == (lost == "after")


def test_claims_whose_renewal_was_not_answered_are_renewed_again_sooner(bench: Bench) -> None:
    clock, waited_s, claims = VirtualClock(), [], bench.claims
    claims._clock = clock
    claims.keep(bench.claimed("a"))
    bench.checker.before("renew_many", lambda: None, loses(AWAY), loses(AWAY))

    def wait(seconds: float) -> None:
        waited_s.append(round(seconds))
        clock.advance(round(seconds * 1000))
        if len(waited_s) == 6:
            claims._stopping.set()

    claims._awake = SimpleNamespace(  # type: ignore[assignment]
        wait=wait, clear=lambda: None, set=lambda: None
    )
    claims.run()
    third_s, twelfth_s = LEASE_MS / 3000, LEASE_MS / 12_000
    assert waited_s == [third_s, third_s, twelfth_s, twelfth_s, third_s, third_s]
