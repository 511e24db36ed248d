"""What many threads publish goes to the store in batches, in each thread's order."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from interrupting import interrupt, may_be_lost

from qframe import BadBody, BadOption, Outcome, ProducerClosed, QFrame, Topic, TopicFull
from qframe.errors import StoreUnavailable
from qframe.stores.types import Entry

STREAM = Topic("events", slots=1)


@pytest.fixture
def app() -> Iterator[QFrame]:
    with QFrame("model://") as app:
        app.declare(STREAM)
        app.store.subscribe(STREAM, "g")
        yield app


@pytest.fixture
def batches(app: QFrame, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages each call to the store has carried."""
    sizes: list[int] = []
    publish = app.store.publish

    def counted(topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        sizes.append(len(entries))
        return publish(topic, entries)

    monkeypatch.setattr(app.store, "publish", counted)
    return sizes


def stored(app: QFrame) -> list[Any]:
    return [int(one.body) for one in app.store.peek(STREAM, "g", states=["todo"], limit=10_000)]


def test_many_threads_publish_and_each_keeps_its_order(app: QFrame, batches: list[int]) -> None:
    def publish(thread: int) -> list[str]:
        futures = [producer.publish(STREAM, thread * 1000 + number) for number in range(300)]
        return [future.result(60).id for future in futures]

    with app.buffered(linger="20ms", batch=100) as producer, ThreadPoolExecutor(8) as threads:
        ids = [each for found in threads.map(publish, range(8)) for each in found]
    bodies = stored(app)
    assert len(set(ids)) == len(bodies) == 2400
    for thread in range(8):
        mine = [body for body in bodies if body // 1000 == thread]
        assert mine == sorted(mine)
    assert sum(batches) == 2400
    assert max(batches) <= 100
    assert len(batches) < 1200


def test_a_futures_callback_that_publishes_waits_for_no_room(app: QFrame) -> None:
    with app.buffered(linger=0.001, batch=2, capacity=2) as producer:
        for number in range(20):
            future = producer.publish(STREAM, number)
            future.add_done_callback(
                lambda _, number=number: [
                    producer.publish(STREAM, 100 * number + more) for more in (1, 2)
                ]
            )
        eventually(lambda: len(stored(app)) == 60)


def test_a_signals_handler_may_close_it_wherever_the_signal_strikes() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", """
import signal
from qframe import ProducerClosed, QFrame, Topic
def strike(*_):
    inside.append(producer._changed._is_owned())
    producer.close()
signal.signal(signal.SIGALRM, strike)
inside, sure = [], []
with QFrame("model://") as app:
    while len(inside) < 50 or not any(inside):
        producer = app.buffered(linger="1h")
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        try:
            while True:
                sure.append(producer.publish(Topic("t"), 1))
        except ProducerClosed:
            producer.close()
    assert all(future.done() for future in sure)
print("ok")
"""],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (answer.returncode, answer.stderr, answer.stdout) == (0, "", "ok\n")


@may_be_lost
def test_a_signal_that_ends_a_publish_leaves_the_producer_to_others(app: QFrame) -> None:
    producer = app.buffered(linger="1ms", batch=100, capacity=100)
    sure = []
    interrupt(lambda: sure.append(producer.publish(STREAM, len(sure))), 200)
    assert producer.close("30s")
    assert all(future.done() for future in sure)


@pytest.mark.parametrize("closes", ["producer", "app"])
def test_closing_it_or_its_app_sends_what_waits_and_takes_nothing_more(
    app: QFrame, closes: str
) -> None:
    producer = app.buffered(linger="1h")
    futures = [producer.publish(STREAM, number) for number in range(5)]
    if closes == "app":
        app.close()
    else:
        assert producer.close("90000000000s")  # seconds: it may wait for centuries
        assert stored(app) == [0, 1, 2, 3, 4]
    assert [future.result(0).outcome for future in futures] == [Outcome.STORED] * 5
    with pytest.raises(ProducerClosed, match="closed"):
        producer.publish(STREAM, 5)


def test_what_is_wrong_is_refused_at_once_and_the_others_go(app: QFrame) -> None:
    with app.buffered() as producer:
        with pytest.raises(BadBody):
            producer.publish(STREAM, object())
        assert producer.publish(STREAM, 1, id="one").result(60).id == "one"
        assert producer.publish(STREAM, 1, id="one").result(60).outcome is Outcome.DUPLICATE


def test_a_topic_that_is_full_refuses_those_that_do_not_fit(app: QFrame) -> None:
    small = app.declare(Topic("small", slots=1, max_length=2))
    with app.buffered(linger="1h", batch=3) as producer:
        futures = [producer.publish(small, number) for number in range(3)]
        assert [future.exception(60) is None for future in futures] == [True, True, False]
    assert isinstance(futures[2].exception(), TopicFull)


@pytest.mark.parametrize("error", [StoreUnavailable("model://", "it is away"), ZeroDivisionError()])
def test_a_store_that_fails_fails_the_batch_and_not_the_next(
    app: QFrame, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with app.buffered(linger="1ms") as producer:
        with monkeypatch.context() as patch:
            patch.setattr(app.store, "publish", lambda *_: (_ for _ in ()).throw(error))
            assert producer.publish(STREAM, 1).exception(60) is error
        assert producer.publish(STREAM, 2).result(60).outcome is Outcome.STORED
    assert stored(app) == [2]


def test_who_publishes_more_than_fits_waits_for_room(
    app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    publish = app.store.publish

    def slowly(topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        gate.wait(60)
        return publish(topic, entries)

    monkeypatch.setattr(app.store, "publish", slowly)
    done: list[int] = []
    with app.buffered(linger=0, batch=1, capacity=2) as producer:

        def fill() -> None:
            for number in range(6):
                producer.publish(STREAM, number)
                done.append(number)

        thread = threading.Thread(target=fill)
        thread.start()
        eventually(lambda: len(done) >= 3)
        assert not threading.Event().wait(0.1)
        assert len(done) == 3
        gate.set()
        thread.join(60)
    assert stored(app) == list(range(6))


def test_a_linger_of_centuries_is_ended_by_a_full_batch_and_by_closing(app: QFrame) -> None:
    with app.buffered(linger="900000d", batch=2) as producer:
        full = [producer.publish(STREAM, number) for number in range(2)]
        assert [future.result(60).outcome for future in full] == [Outcome.STORED] * 2
        first = producer.publish(STREAM, 2)
        with pytest.raises(TimeoutError):
            first.result(0.05)
    assert first.result(0).outcome is Outcome.STORED


def test_what_its_user_has_cancelled_is_not_sent_and_all_others_are(app: QFrame) -> None:
    with app.buffered(linger="1h", batch=3) as producer:
        futures = [producer.publish(STREAM, 1), producer.publish(STREAM, 2)]
        assert futures[0].cancel()
        futures.append(producer.publish(STREAM, 3))
        assert futures[2].result(60).outcome is Outcome.STORED
        assert all(producer.publish(STREAM, number).cancel() for number in range(3))
        last = producer.publish(STREAM, 4)
    assert last.result(0).outcome is Outcome.STORED
    assert stored(app) == [2, 3, 4]


def test_a_message_that_cannot_be_sent_at_the_end_is_counted_in_the_log(
    app: QFrame, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = StoreUnavailable("model://", "it is away")
    monkeypatch.setattr(app.store, "publish", lambda *_: (_ for _ in ()).throw(error))
    producer = app.buffered(linger="1h")
    futures = [producer.publish(STREAM, number) for number in range(3)]
    producer.finish()
    assert [future.exception(0) for future in futures] == [error] * 3
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("3 messages of a buffered producer were not sent (store model:// cannot")


def test_what_a_callback_raises_ends_no_producer(app: QFrame) -> None:
    def leave(_: object) -> None:
        raise SystemExit("a user's callback")

    with app.buffered(linger="20ms") as producer:
        futures = [producer.publish(STREAM, number) for number in range(3)]
        for future in futures:
            future.add_done_callback(leave)
        assert [future.result(60).outcome for future in futures] == [Outcome.STORED] * 3
        assert producer.publish(STREAM, 3).result(60).outcome is Outcome.STORED
    assert stored(app) == [0, 1, 2, 3]


def test_a_message_that_the_store_refuses_fails_alone_and_the_others_are_stored_once(
    app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = app.store.publish

    def picky(topic: Topic, entries: Sequence[Entry]) -> list[Outcome]:
        taken = [entry for entry in entries if entry.body != b"1"]
        outcomes = publish(topic, taken)  # as where the refused one lies in another slot
        if len(taken) < len(entries):
            raise BadBody("body", 1, "the store takes none", "publish another")
        return outcomes

    monkeypatch.setattr(app.store, "publish", picky)
    with app.buffered(linger="1h", batch=4) as producer:
        futures = [producer.publish(STREAM, number) for number in range(4)]
        assert isinstance(futures[1].exception(60), BadBody)
        for future in (futures[0], futures[2], futures[3]):
            assert future.result(60).outcome in (Outcome.STORED, Outcome.DUPLICATE)
    assert stored(app) == [0, 2, 3]


def test_the_end_of_a_program_sends_what_nobody_has_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal"
    program = f"""
from qframe import QFrame, Topic
buffered = QFrame({url!r}).buffered(linger="1h")
for number in range(1200):
    buffered.publish(Topic("events", slots=1), number)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    with QFrame(url) as app:
        app.store.subscribe(STREAM, "g", "earliest")
        assert stored(app) == list(range(1200))


def test_closing_refuses_a_time_that_is_none(app: QFrame) -> None:
    wrong: list[Any] = [math.nan, math.inf, -1, 1e300, "soon"]
    with app.buffered() as producer:
        for timeout_s in wrong:
            with pytest.raises(BadOption, match="timeout_s"):
                producer.close(timeout_s=timeout_s)


def test_wrong_options_are_refused(app: QFrame) -> None:
    wrong: list[dict[str, Any]] = [{"batch": 0}, {"capacity": 0}, {"linger": "soon"}]
    for option in wrong:
        with pytest.raises(BadOption, match=next(iter(option))):
            app.buffered(**option)
