"""Absent, running, done: what every checker answers, on every server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checking import MARKING, REDIS, TRANSACTIONAL, checker_of, new_scope
from eventually import eventually
from sqlalchemy.exc import OperationalError

from qframe.errors import CheckerUnavailable, EffectConflict
from qframe.idempotency.base import Claim, Scope, State
from qframe.idempotency.effects_table import passing

pytestmark = pytest.mark.promise(2)

LEASE_MS = 30_000


@pytest.fixture
def scope() -> Scope:
    return new_scope()


EVERYWHERE = tuple(dict.fromkeys(REDIS + MARKING))


@pytest.fixture(params=EVERYWHERE + TRANSACTIONAL)
def checker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with checker_of(request, request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=EVERYWHERE)
def marking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with checker_of(request, request.param, tmp_path) as made:
        yield made


def claimed(checker: Any, scope: Scope, key: str, lease_ms: int = LEASE_MS) -> Claim:
    claim = Claim(key)
    checker.claim_many(scope, [claim], lease_ms)
    return claim


def test_an_effect_is_absent_then_running_then_done_for_everybody(
    checker: Any, scope: Scope
) -> None:
    first = claimed(checker, scope, "a")
    assert first.state is State.CLAIMED
    second = claimed(checker, scope, "a")
    assert (second.state, second.transaction) == (State.RUNNING, None)
    assert checker.release_many(scope, [first]) == [True]
    third = claimed(checker, scope, "a")
    assert third.state is State.CLAIMED
    assert checker.finish_many(scope, [third]) == [True]
    assert claimed(checker, scope, "a").state is State.DONE


@pytest.mark.parametrize("field", ["namespace", "topic", "group"])
def test_another_namespace_topic_or_group_has_effects_of_its_own(
    checker: Any, scope: Scope, field: str
) -> None:
    checker.finish_many(scope, [claimed(checker, scope, "a")])
    other = scope._replace(**{field: "another"})
    assert other != scope
    theirs = claimed(checker, other, "a")
    assert theirs.state is State.CLAIMED
    checker.release_many(other, [theirs])


def test_who_meets_a_running_one_is_told_how_long_its_lease_lasts_as_it_was_renewed(
    marking: Any, scope: Scope
) -> None:
    first = claimed(marking, scope, "a", lease_ms=600_000)
    assert 0 < claimed(marking, scope, "a").wait_ms <= 600_000
    for lease_ms in (60_000, 300_000):
        assert marking.renew_many(scope, [first], lease_ms) == [True]
        assert lease_ms / 2 < claimed(marking, scope, "a").wait_ms <= lease_ms


@pytest.mark.parametrize("name", EVERYWHERE + TRANSACTIONAL)
def test_what_is_done_is_forgotten_once_its_retention_is_over(
    request: pytest.FixtureRequest, tmp_path: Path, scope: Scope, name: str
) -> None:
    with checker_of(request, name, tmp_path, retention=0.1) as checker:
        assert checker.finish_many(scope, [claimed(checker, scope, "a")]) == [True]

        def again() -> Claim | None:
            checker.sweep(10)
            claim = claimed(checker, scope, "a")
            return claim if claim.state is State.CLAIMED else None

        checker.release_many(scope, [eventually(again, within=20)])


def test_what_is_done_outlasts_a_sweep_before_its_retention_is_over(
    request: pytest.FixtureRequest, tmp_path: Path, scope: Scope
) -> None:
    for name in ("database-sqlite", "transactional-sqlite"):
        with checker_of(request, name, tmp_path, retention=30) as checker:
            assert checker.finish_many(scope, [claimed(checker, scope, "a")]) == [True]
            assert checker.sweep(10) == 0
            assert claimed(checker, scope, "a").state is State.DONE


@pytest.fixture(params=TRANSACTIONAL)
def transactional(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with checker_of(request, request.param, tmp_path) as made:
        yield made


def test_many_that_are_claimed_together_have_one_transaction_and_are_rolled_back_together(
    transactional: Any, scope: Scope
) -> None:
    transactional.finish_many(scope, [claimed(transactional, scope, "done")])
    for finishes in (False, True):
        claims = [Claim(key) for key in ("b", "done", "a")]
        transactional.claim_together(scope, claims)
        assert [claim.state for claim in claims] == [State.CLAIMED, State.DONE, State.CLAIMED]
        b, _, a = claims
        assert a.transaction is b.transaction
        assert claimed(transactional, scope, "a").state is State.RUNNING
        end = transactional.finish_many if finishes else transactional.release_many
        assert end(scope, [a, b]) == [True, True]
    assert {claimed(transactional, scope, key).state for key in "ab"} == {State.DONE}


def test_what_others_have_done_or_have_in_hand_is_told_and_the_rest_is_claimed(
    request: pytest.FixtureRequest, tmp_path: Path, scope: Scope
) -> None:
    """But on SQLite, which has one transaction at a time."""
    for name in ("transactional-postgres", "transactional-mariadb"):
        with checker_of(request, name, tmp_path) as checker:
            checker.finish_many(scope, [claimed(checker, scope, "done")])
            running = claimed(checker, scope, "running")
            claims = [Claim(key) for key in ("b", "running", "done", "a", *map(str, range(600)))]
            checker.claim_together(scope, claims)
            found = {claim.key: claim.state for claim in claims}
            assert found.pop("running") is State.RUNNING
            assert found.pop("done") is State.DONE
            assert set(found.values()) == {State.CLAIMED}
            mine = [claim for claim in claims if claim.is_mine]
            assert all(checker.finish_many(scope, mine))
            checker.release_many(scope, [running])
            assert claimed(checker, scope, "599").state is State.DONE


def test_while_another_one_writes_on_sqlite_all_that_are_claimed_together_are_running(
    request: pytest.FixtureRequest, tmp_path: Path, scope: Scope
) -> None:
    with checker_of(request, "transactional-sqlite", tmp_path) as checker:
        with sqlite3.connect(checker._effects.engine.url.database) as other:
            other.execute("CREATE TABLE other (number INTEGER)")
            other.execute("INSERT INTO other VALUES (1)")
            claims = [Claim("a"), Claim("b")]
            checker.claim_together(scope, claims)
            assert [claim.state for claim in claims] == [State.RUNNING] * 2
        other.close()
        checker.claim_together(scope, claims)
        assert all(claim.is_mine for claim in claims)
        checker.release_many(scope, claims)


def test_each_of_many_has_a_transaction_of_its_own(
    request: pytest.FixtureRequest, tmp_path: Path, scope: Scope
) -> None:
    """But on SQLite, which has one at a time."""
    for name in ("transactional-postgres", "transactional-mariadb"):
        with checker_of(request, name, tmp_path) as checker:
            claims = [Claim(key) for key in ("a", "b")]
            checker.claim_many(scope, claims, LEASE_MS)
            assert all(claim.is_mine for claim in claims)
            assert claims[0].transaction is not claims[1].transaction
            checker.release_many(scope, claims[:1])
            checker.finish_many(scope, claims[1:])
            assert claimed(checker, scope, "b").state is State.DONE
            last = claimed(checker, scope, "a")
            assert last.state is State.CLAIMED
            checker.release_many(scope, [last])


@pytest.mark.parametrize("name", ["sqlstate", "pgcode"])
@pytest.mark.parametrize(
    ("code", "expected"),
    [("40P01", EffectConflict), ("40001", EffectConflict), ("57P01", CheckerUnavailable)],
)
def test_an_error_that_may_pass_is_known_by_its_code_whatever_a_driver_calls_that(
    name: str, code: str, expected: type[CheckerUnavailable]
) -> None:
    """It is `pgcode` in psycopg2, which the tests do not have."""
    cause = Exception("refused")
    setattr(cause, name, code)
    assert type(passing("checker", OperationalError("UPDATE", {}, cause))) is expected
    setattr(cause, name, "23505")
    assert passing("checker", OperationalError("UPDATE", {}, cause)) is None
