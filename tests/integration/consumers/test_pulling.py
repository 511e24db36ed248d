"""`app.pull`: messages for a loop of one's own, and what becomes of those it does not settle."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from apps import running, settled, told
from eventually import eventually

from qframe import (
    AlreadySettled,
    BadOption,
    Message,
    NotSupported,
    Outgoing,
    Pull,
    QFrame,
    StoreUnavailable,
    Topic,
    UnknownTopic,
    WorkerFailed,
)
from qframe.testing import Harness

KINDS = ("stream", "ordered", "delay", "priority", "merge")


def taken(messages: Pull) -> Message:
    """The next message, however long it takes to come."""
    message = messages.take(timeout="60s")
    assert message is not None
    return message


@pytest.mark.gate
@pytest.mark.promise(3, 4)
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_the_next_of_a_key_comes_when_the_one_before_is_settled_and_others_at_once(
    each_app: QFrame, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    each_app.publish_many(topic, [Outgoing(n, key=f"k{n % 5}") for n in range(15)])
    with each_app.pull(topic, "g", timeout="300ms") as messages:
        rounds = []
        for _ in range(3):
            opened = [taken(messages) for _ in range(5)]
            assert list(messages) == []  # each key has one open
            rounds.append(sorted(message.body for message in opened))
            for message in opened:
                message.ack()
        assert rounds == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]
        assert list(messages) == []


@pytest.mark.gate
@pytest.mark.promise(9)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_settled_when_the_block_ends_is_given_back_uncounted(
    each_app: QFrame, kind: str
) -> None:
    topic = Topic("t", kind=kind, slots=2)
    events = told(each_app)
    count = 12
    each_app.publish_many(
        each_app.declare(topic),
        [Outgoing(n, key=f"k{n % (4 if kind == 'ordered' else count)}") for n in range(count)],
    )
    opened: list[Message] = []

    def fails() -> None:
        with each_app.pull(topic, "g") as messages:
            opened.extend(next(iter(messages)) for _ in range(3))
            opened[1].ack()
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        fails()
    first, second, third = opened
    assert first.cancelled
    with pytest.raises(AlreadySettled):
        third.ack()
    # At once, without waiting for a lease: its slots are free, and nothing is in doing.
    with each_app.pull(topic, "g") as messages:
        again = []
        for message in messages:
            again.append((message.body, message.attempt))
            message.ack()
            if len(again) == count - 1:
                break
    assert sorted(again) == sorted((n, 1) for n in range(count) if n != second.body)
    assert (events["delivery.lost"], events["delivery.leaked"]) == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pull_that_retires_waits_for_what_is_open_and_no_longer(
    each_app: QFrame, kind: str
) -> None:
    topic = each_app.declare(Topic("t", kind=kind, slots=2))
    each_app.publish_many(topic, [Outgoing(n, key=f"k{n}") for n in range(8)])
    opened: list[Message] = []
    with each_app.pull(topic, "g", timeout="60s") as messages:
        opened.extend(taken(messages) for _ in range(3))
        retiring = threading.Thread(target=messages.retire)
        retiring.start()
        assert list(messages) == []
        messages.put_back(opened[:1])
        with pytest.raises(AlreadySettled):
            opened[0].ack()
        opened[1].ack()
        retiring.join(0.1)
        assert retiring.is_alive()
        opened[2].ack()
        retiring.join(60)
        assert not retiring.is_alive()
    with each_app.pull(topic, "g", timeout="60s") as messages:
        again = [taken(messages) for _ in range(6)]
        assert {one.attempt for one in again} == {1}
        assert {one.body for one in again} == set(range(8)) - {one.body for one in opened[1:]}
        messages.close()
        messages.retire()  # a close is final


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_what_is_put_back_comes_before_the_next_of_its_key(each_app: QFrame, kind: str) -> None:
    topic = each_app.declare(Topic("t", kind=kind, slots=1))
    with each_app.pull(topic, "g") as messages:
        for _ in range(4):  # it begins with one message at a time
            each_app.publish(topic, 0, key="ben")
            taken(messages).ack()
        each_app.publish_many(topic, [Outgoing(n, key="ann") for n in range(3)])
        first = taken(messages)
        eventually(lambda: sum(one.doing for one in each_app.store.stats(topic, "g")) == 3)
        messages.put_back([first])
        seen = []
        for _ in range(3):
            message = taken(messages)
            seen.append((message.body, message.attempt))
            message.ack()
    assert seen == [(0, 1), (1, 1), (2, 1)]


def test_messages_are_settled_from_other_threads_and_taken_in_them(each_app: QFrame) -> None:
    topic = Topic("t", slots=4)
    each_app.publish_many(topic, [Outgoing(n, key=f"k{n % 10}") for n in range(100)])
    seen: list[tuple[str | None, int]] = []
    with each_app.pull(topic, "g") as messages:

        def work() -> None:
            for message in messages:
                seen.append((message.key, message.body))
                message.ack()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        eventually(lambda: settled(each_app, topic) == 100)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    by_key = {key: [body for each, body in seen if each == key] for key, _ in seen}
    assert all(bodies == sorted(bodies) for bodies in by_key.values())


@pytest.mark.promise(4)
def test_what_was_fenced_off_is_cancelled_and_its_ack_changes_nothing(each_app: QFrame) -> None:
    topic = Topic("t", slots=1)
    events = told(each_app)
    each_app.publish(topic, "x", key="k")
    with each_app.pull(topic, "g", lease=3) as messages:
        message = messages.take()
        assert message is not None
        each_app.store.seek(topic, "g", {0: 0})
        eventually(lambda: message.cancelled)
        # It comes again, but not beside the first one, which its user holds still.
        assert messages.take(timeout="50ms") is None
        message.ack()
        again = messages.take()
        assert again is not None
        assert (again.id, again.attempt) == (message.id, 1)
        again.ack()
    assert settled(each_app, topic) == 1
    assert events["delivery.stale"] == 1


def test_a_pull_shares_its_group_with_workers_and_leaves_it_to_them(each_app: QFrame) -> None:
    topic = Topic("t", slots=8)
    handled: list[int] = []

    @each_app.consumer(topic, "g")
    def handle(message: Message) -> None:
        handled.append(message.body)

    def members() -> Any:
        roster = each_app.store.roster(topic, "g")
        return roster.members if roster is not None else ()

    with running(each_app):
        with each_app.pull(topic, "g") as messages:
            eventually(lambda: len(members()) == 2)
            pulled: list[int] = []
            number = 0
            while not pulled or not handled:
                each_app.publish(topic, number, key=f"k{number}")
                number += 1
                message = messages.take(timeout="20ms")
                if message is not None:
                    pulled.append(message.body)
                    message.ack()
        eventually(lambda: settled(each_app, topic) == number)
        assert sorted(handled + pulled) == list(range(number))


def test_a_loop_that_waits_ends_when_its_pull_or_its_app_is_closed(each_app: QFrame) -> None:
    each_app.declare(Topic("t", slots=1))
    for closes in ("close", "app.close"):
        ended = threading.Event()
        with each_app.pull("t", "g") as messages:

            def wait(messages: Any = messages, ended: threading.Event = ended) -> None:
                assert list(messages) == []
                ended.set()

            waiting = threading.Thread(target=wait)
            waiting.start()
            (messages if closes == "close" else each_app).close()
            assert ended.wait(60)
            assert messages.take() is None
        waiting.join()


def test_a_loop_ends_by_its_timeout_and_another_one_goes_on(each_app: QFrame) -> None:
    topic = each_app.declare(Topic("t", slots=1))
    with each_app.pull(topic, "g", timeout=0.05) as messages:
        loop = iter(messages)
        assert list(loop) == []
        each_app.publish(topic, 1)
        assert list(loop) == []  # an iterator that has ended stays so
        message = messages.take(timeout=60)
        assert message is not None
        message.ack()


def test_a_part_that_fails_is_heard_in_the_loop(each_app: QFrame) -> None:
    topic = Topic("t", slots=1)
    each_app.declare(topic)

    def loses_its_group() -> None:
        with each_app.pull(topic, "g") as messages:
            each_app.publish(topic, 1)
            message = messages.take()  # so it has its slot
            each_app.store.drop_group(topic, "g")
            messages._worker.consumers[0].pull_loop.wake()
            assert message is not None
            assert list(messages) == []

    with pytest.raises(WorkerFailed, match="it has never subscribed"):
        loses_its_group()


def test_signals_are_left_alone(each_app: QFrame) -> None:
    each_app.declare(Topic("t", slots=1))
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    with each_app.pull("t", "g"):
        assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def test_nothing_is_left_running_after_the_block(each_app: QFrame) -> None:
    each_app.declare(Topic("gone", slots=1))
    with each_app.pull("gone", "g"):
        running = [each.name for each in threading.enumerate() if ".gone.g" in each.name]
        assert "qframe.pulling.gone.g" in running
    assert not [each.name for each in threading.enumerate() if ".gone.g" in each.name]
    roster = each_app.store.roster(Topic("gone", slots=1), "g")
    assert roster is not None
    assert not roster.members


def test_a_pull_waits_for_longer_than_a_lock_could(each_app: QFrame) -> None:
    topic = Topic("t", slots=1)
    each_app.declare(topic)
    with each_app.pull(topic, "g", timeout="9999999h") as messages:
        first = threading.Timer(0, each_app.publish, (topic, "x"))
        taken = []
        first.start()
        for message in messages:
            taken.append(message.body)
            message.ack()
            messages.close()
        first.join()
    assert taken == ["x"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threads": 4}, "pull option 'threads': there is no such option"),
        ({"auto_ack": True}, "pull option 'auto_ack': there is no such option"),
        ({"leese": 4}, "did you mean 'lease'"),
        ({"lease": 0}, "lease 0: it must be seconds"),
        ({"timeout": -1}, "timeout -1: it is not a duration"),
        ({"tags": []}, "tags"),
    ],
)
def test_a_wrong_option_of_a_pull_is_refused(options: dict[str, Any], text: str) -> None:
    with QFrame() as app, pytest.raises(BadOption, match=text):
        app.pull("t", "g", **options)


def test_a_pull_is_used_in_one_block(each_app: QFrame) -> None:
    each_app.declare(Topic("t", slots=1))
    pull = each_app.pull("t", "g")
    with pytest.raises(BadOption, match=r"use it as `with app\.pull"):
        pull.take()
    with pytest.raises(BadOption, match=r"use it as `with app\.pull"):
        list(pull)
    with pull, pytest.raises(BadOption, match=r"call app\.pull again"):
        pull.__enter__()


def begins(pull: Pull) -> None:
    with pull:
        raise AssertionError


def test_what_cannot_begin_says_why(tmp_path: Path) -> None:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app, pytest.raises(UnknownTopic):
        begins(app.pull("nobody", "g"))
    with QFrame("redis://127.0.0.1:1") as app, pytest.raises(StoreUnavailable):
        begins(app.pull(Topic("t"), "g"))


def test_a_harness_refuses_a_pull() -> None:
    app = QFrame()
    with Harness(app):
        app.declare(Topic("t"))
        with pytest.raises(NotSupported, match="pull in a Harness"):
            begins(app.pull("t", "g"))
