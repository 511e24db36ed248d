"""How long checkers remember, what they do again, and what they make of servers that are away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, StaticPool, create_engine, event, select, text, update

from qframe.errors import BadOption, CheckerUnavailable
from qframe.idempotency.base import Claim, Scope, Terms, check_memory, longest_ms
from qframe.idempotency.database import DatabaseChecker
from qframe.idempotency.keys import MAX_CHARS, key_of
from qframe.idempotency.redis import RedisChecker
from qframe.idempotency.sweep import STEP, EffectSweeper
from qframe.retry import Backoff

SCOPE = Scope("n", "orders", "billing")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/shop.db")
    yield made
    made.dispose()


@pytest.fixture
def checker(engine: Engine) -> DatabaseChecker:
    made = DatabaseChecker(engine, retention="1h")
    made.open()
    return made


def test_a_claim_lasts_from_when_it_is_made_and_is_remembered_for_the_retention_too(
    checker: DatabaseChecker,
) -> None:
    claim = Claim("a")
    for lease_ms in (1000, 60_000):
        checker.claim_many(SCOPE, [claim], lease_ms)
        assert claim.is_mine
    table = checker._effects.table
    asked = [table.c[name] - checker._effects.now_ms for name in ("lease_until", "expires_at")]
    with checker._effects.engine.begin() as connection:
        lease_ms, memory_ms = connection.execute(select(*asked)).one()
    assert 50_000 < lease_ms <= 60_000
    assert 3_650_000 < memory_ms <= 3_660_000


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?cache=shared&uri=true",
            "sqlite:///file:shop?mode=memory&uri=true"],
)  # fmt: skip
def test_a_database_in_memory_is_no_memory(url: str) -> None:
    engine = create_engine(url, poolclass=StaticPool)
    with pytest.raises(BadOption, match="in memory is lost"):
        DatabaseChecker(engine)


def test_a_sweep_leaves_what_was_renewed_since_it_looked(
    checker: DatabaseChecker, engine: Engine
) -> None:
    table = checker._effects.table
    claims = [Claim("a"), Claim("b")]
    checker.claim_many(SCOPE, claims, 1000)
    with engine.begin() as connection:
        connection.execute(update(table).values(expires_at=1))

    @event.listens_for(engine, "before_cursor_execute")
    def renew(_connection: Any, cursor: Any, statement: str, *_: object) -> None:
        if statement.startswith("DELETE"):
            cursor.execute(f"UPDATE {table.name} SET expires_at = 1e15 WHERE effect = 'b'")

    checker.sweep(STEP)
    event.remove(engine, "before_cursor_execute", renew)
    with engine.begin() as connection:
        assert list(connection.scalars(text(f"SELECT effect FROM {table.name}"))) == ["b"]


def test_a_sweep_begins_with_what_is_oldest(checker: DatabaseChecker, engine: Engine) -> None:
    table = checker._effects.table
    for number, key in ((3, "a"), (1, "b"), (2, "c")):
        checker.claim_many(SCOPE, [Claim(key)], 1000)
        with engine.begin() as connection:
            is_it = table.c.effect == key
            connection.execute(update(table).where(is_it).values(expires_at=number))
    assert checker.sweep(2) == 2
    with engine.begin() as connection:
        assert list(connection.scalars(select(table.c.effect))) == ["a"]


def test_a_sweep_goes_on_while_its_steps_are_full_and_tells_of_trouble() -> None:
    left: list[Any] = [STEP, STEP, 3, CheckerUnavailable("checker", "it is away")]
    told: list[CheckerUnavailable] = []

    class Steps:
        def sweep(self, _limit: int) -> int:
            found = left.pop(0)
            if isinstance(found, Exception):
                raise found
            return int(found)

    steps: Any = Steps()
    sweeper = EffectSweeper("s", steps, on_trouble=told.append, on_failure=lambda *_: None)
    sweeper._stopping.wait = lambda _=None: False  # type: ignore[method-assign]
    sweeper._sweep()
    assert len(left) == 1
    sweeper._sweep()
    assert len(told) == 1


def test_a_memory_is_as_long_as_messages_may_come() -> None:
    backoff = Backoff(first=1.0, factor=2.0, cap=100.0)
    longest = longest_ms(backoff=backoff, max_attempts=3, lease_ms=30_000)
    assert longest == sum(backoff.bound_ms(attempt) for attempt in (1, 2)) + 3 * 30_000
    terms = Terms(lease_ms=30_000, longest_ms=longest)
    check_memory("ttl", longest, terms)
    with pytest.raises(BadOption):
        check_memory("ttl", longest - 1, terms)


def test_a_key_that_a_database_would_cut_is_known_by_its_hash() -> None:
    key: Any = key_of(None)
    keys = [
        key(SimpleNamespace(id=each))
        for each in ("a", "a ", "a  ", "x" * MAX_CHARS, "x" * MAX_CHARS + "x")
    ]
    assert len(set(keys)) == 5
    assert ["sha256:" in each for each in keys] == [False, True, True, False, True]


def test_a_node_that_is_away_loses_no_claim_and_finishes_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checker = RedisChecker("redis://127.0.0.1:1")
    claims = [Claim("a"), Claim("b"), Claim("c")]
    monkeypatch.setattr(checker, "_run", lambda *_: [1, None, 0])
    assert checker.renew_many(SCOPE, claims, 1000) == [True, True, False]
    with pytest.raises(CheckerUnavailable):
        checker.finish_many(SCOPE, claims)
    with pytest.raises(CheckerUnavailable):
        checker.claim_many(SCOPE, claims, 1000)
