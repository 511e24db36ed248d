"""Every option of a consumer in a harness: each of its loops ends, and all is handled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, NullPool, create_engine, text
from sqlalchemy.orm import Session

from qframe import (
    AllOf,
    Backoff,
    Batch,
    Breaker,
    DatabaseChecker,
    Message,
    Middleware,
    Outbox,
    QFrame,
    RateLimit,
    Topic,
    TransactionalChecker,
)
from qframe.errors import BadOption, CommitRefused, NeverIdle
from qframe.options.consumer import ConsumerOptions
from qframe.options.rules import options_of
from qframe.tables import tables
from qframe.testing import Harness, resetting
from qframe.testing import progress as in_vain
from qframe.testing.progress import Progress

COUNT = 30
Options = dict[str, Any]
KEYS: dict[str, Callable[[int], str | None]] = {
    "one key": lambda _: "k", "three keys": lambda number: f"k{number % 3}",
}  # fmt: skip
# Small buckets, which one key's messages do not fit into, and larger ones, of several draws.
LIMITS = (
    RateLimit("10/s", burst=3), RateLimit("100/s"), RateLimit("10/s", burst=3, over="group"),
    RateLimit("100/s", over="group"), RateLimit("2/s", over="group"),
)  # fmt: skip
ROWS: dict[str, list[Options]] = {
    "threads": [{"threads": 1}, {"threads": 8}],
    "max_attempts": [{"max_attempts": 1}, {"max_attempts": 3}],
    "backoff": [{"backoff": Backoff("10s", cap="1m")}],
    "lease": [{"lease": "200ms"}],
    "auto_ack": [{"auto_ack": False}],
    "max_in_flight": [{"max_in_flight": 1}, {"max_in_flight": 7}],
    "start": [{"start": "earliest"}, {"start": "latest"}],
    "broadcast": [{"broadcast": True}],
    "broadcast_expires": [{"broadcast": True, "broadcast_expires": "60s"}],
    "serial": [{"serial": True}],
    "keep_order": [{"keep_order": True}],
    "max_parked": [{"keep_order": True, "max_parked": 1}],
    "on_dead": [{"on_dead": lambda message, error: None, "max_attempts": 1}],
    "idempotent_checker": [{"idempotent_checker": DatabaseChecker}],
    "timeout": [{"timeout": "1s"}],
    "rate_limit": [{"rate_limit": limit} for limit in LIMITS],
    "breaker": [{"breaker": Breaker(2, pause="30s")}],
    "max_in_flight_bytes": [{"max_in_flight_bytes": 65_536}],
    "batch": [{"batch": Batch(7, "50ms")}],
    "tags": [{"tags": "gold"}, {"tags": AllOf("gold", "even")}],
    "middleware": [{"middleware": Middleware}],
    "local_retries": [{"local_retries": 0}],
    "at_most_once": [{"at_most_once": True}],
}
ON_STREAMS = ("keep_order",)


def one_of_each() -> Iterator[tuple[str, Options]]:
    for name, rows in ROWS.items():
        yield from ((f"{name}-{number}", row) for number, row in enumerate(rows))


def mixed() -> Iterator[tuple[str, Options]]:
    """Rates, breakers, tags and batches with each other."""
    parts = (LIMITS, (None, Breaker(2, pause="3s")), (None, "gold"), (None, Batch(7, "50ms")))
    for number, (limit, breaker, tags, batch) in enumerate(product(*parts)):
        yield f"mixed-{number}", {
            "rate_limit": limit, "breaker": breaker, "tags": tags, "batch": batch,
        }  # fmt: skip


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'effects.db'}", poolclass=NullPool)
    yield engine
    engine.dispose()


def test_every_option_of_a_consumer_has_a_row() -> None:
    assert set(ROWS) == set(options_of(ConsumerOptions))
    assert all(name in row for name, rows in ROWS.items() for row in rows)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        pytest.param(row, kind, id=f"{name}-{kind}")
        for name, row in (*one_of_each(), *mixed())
        for kind in ("stream", "ordered")
        if kind == "stream" or not any(option in row for option in ON_STREAMS)
    ],
)
def test_a_harness_comes_to_an_end_with_each_option(
    given: Options, keys: str, kind: str, engine: Engine
) -> None:
    options = dict(given)
    if "idempotent_checker" in given:
        options["idempotent_checker"] = given["idempotent_checker"](engine)
    topic = Topic("t", kind=kind, slots=2)  # type: ignore[arg-type] # one of the two
    handled: list[int] = []
    failed: set[int] = set()

    def work(message: Message) -> None:
        number = message.body
        if number % 10 == 0 and number not in failed:
            failed.add(number)
            raise ConnectionError(number)
        handled.append(number)

    def one(message: Message) -> None:
        work(message)
        if not message.auto_ack:
            message.ack()

    def many(messages: list[Message]) -> None:
        for message in messages:
            work(message)
            message.ack()

    with QFrame("model://") as app:
        app.consumer(topic, "g", **options)(many if options.get("batch") else one)
        with Harness(app) as harness:
            for number in range(COUNT):
                tags = ["gold", "even"] if number % 2 == 0 else ["gold"]
                harness.publish(topic, number, key=KEYS[keys](number), tags=tags)
            harness.run_until_idle()
            harness.advance(seconds=2)
            harness.drain()
            lost = failed if given.get("max_attempts") == 1 or "at_most_once" in given else set()
            wanted = {
                number for number in range(COUNT)
                if not isinstance(given.get("tags"), AllOf) or number % 2 == 0
            }  # fmt: skip
            assert sorted(handled) == sorted(wanted - lost)
            group = harness.deliveries[0].group
            assert harness.waiting(topic, group) == []


def test_what_is_tried_in_vain_for_ever_ends_in_never_idle(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker's claim of an effect does not end while a test lasts."""
    monkeypatch.setattr(in_vain, "MOST_IN_VAIN", 300)
    topic = Topic("t", slots=1)
    checker = DatabaseChecker(engine, key=lambda message: "claimed")
    with QFrame("model://") as app:
        app.consumer(topic, "g", idempotent_checker=checker, rate_limit="10/s")(lambda: None)
        with Harness(app) as harness:
            harness.publish(topic, 1)
            harness.run_until_idle()
            with engine.begin() as connection:
                connection.execute(
                    tables().effects.update().values(state=1, token="another", lease_until=2**60)
                )
            harness.publish(topic, 1)
            harness.run_until_idle()
            with pytest.raises(NeverIdle, match="t/g 1: doing, attempts: 1"):
                harness.drain()
            with pytest.raises(NeverIdle, match="steps without progress: 300"):
                harness.advance(days=300)


def test_progress_is_counted_anew_with_whatever_is_noted() -> None:
    class Noting:
        noted = 0

    noting: Any = Noting()
    progress = Progress(noting)
    store: Any = Noting()
    store.unfinished = list
    for _ in range(3):
        for _ in range(in_vain.MOST_IN_VAIN):
            progress.step(store)
        noting.noted += 1
    progress.step(store)
    progress.begin()
    for _ in range(in_vain.MOST_IN_VAIN):
        progress.step(store)
    with pytest.raises(NeverIdle):
        progress.step(store)


# What a database keeps beside the harness.


def test_a_delivery_whose_transaction_was_refused_has_that_error(engine: Engine) -> None:
    topic = Topic("t", slots=1)
    with QFrame("model://") as app:

        @app.consumer(topic, "g", idempotent_checker=TransactionalChecker(engine), max_attempts=2)
        def handle(session: Session) -> None:
            session.execute(text("SELECT 1"))
            session.rollback()

        with Harness(app) as harness:
            harness.publish(topic, 1)
            harness.drain()
            errors = [type(each.error) for each in harness.deliveries]
            assert (errors, harness.deliveries[-1].outcome) == ([CommitRefused] * 2, "dead")
            assert "CommitRefused" in str(harness.deliveries[0])


@pytest.mark.parametrize("prefix", ["qframe_", "shop_"])
def test_reset_empties_the_tables_of_checkers_and_outboxes_and_no_others(
    engine: Engine, prefix: str
) -> None:
    topic = Topic("t", slots=1)
    handled: list[int] = []
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE side_effects (effect INTEGER)"))
        connection.execute(text("CREATE TABLE poem_lines (line INTEGER, last INTEGER)"))
        connection.execute(text("INSERT INTO side_effects VALUES (1)"))
        connection.execute(text("INSERT INTO poem_lines VALUES (1, 1)"))
    with QFrame("model://") as app:
        outbox = app.relay(Outbox(engine, prefix=prefix))
        checker = DatabaseChecker(engine, prefix=prefix, key=lambda message: "same")

        @app.consumer(topic, "g", idempotent_checker=checker)
        def handle(body: int) -> None:
            handled.append(body)

        for number in range(3):
            with Harness(app, reset=engine) as harness:  # the first time there are no tables
                with engine.begin() as connection:
                    outbox.publish(connection, topic, number)
                harness.run_until_idle()
                with engine.begin() as connection:
                    outbox.publish(connection, "elsewhere", number)
        assert handled == [0, 1, 2]
        with Harness(app, reset=engine):
            assert outbox.pending() == 0
    with engine.connect() as connection:
        left = [
            connection.scalar(text(f"SELECT count(*) FROM {name}"))
            for name in ("side_effects", "poem_lines", f"{prefix}effects")
        ]
    assert left == [1, 1, 0]


def test_reset_knows_the_columns_of_the_tables_as_they_are() -> None:
    ours = tables()
    assert set(ours.effects.columns.keys()) == resetting.EFFECTS
    assert set(ours.outbox.columns.keys()) == resetting.OUTBOX
    assert {each.name.rpartition("_")[2] for each in ours.metadata.sorted_tables} == {
        "effects", "outbox", "lines",
    }  # fmt: skip


def test_reset_takes_an_engine_and_nothing_else() -> None:
    with QFrame("model://") as app:
        harness = Harness(app, reset="sqlite:///x.db")  # type: ignore[arg-type]
        with pytest.raises(BadOption, match=r"^reset .*create_engine"):
            harness.__enter__()
