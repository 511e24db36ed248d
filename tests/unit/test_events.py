"""Events: every listener hears each, in the thread where it happens, until it is removed."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from qframe.events import Events

Heard = list[tuple[str, dict[str, Any]]]


def listener(heard: Heard) -> Any:
    return lambda name, facts: heard.append((name, facts))


def test_events_are_true_only_while_somebody_listens() -> None:
    events = Events()
    assert not events
    stop = events.listen(listener([]))
    assert events
    stop()
    stop()
    assert not events
    events.emit("slot.lost", slot=1)


def test_every_listener_hears_name_and_facts_in_the_order_in_which_they_were_added() -> None:
    events, order = Events(), []
    for number in range(3):
        events.listen(lambda name, facts, number=number: order.append((number, name, facts)))
    events.emit("delivery.stale", topic="t", count=3)
    facts = {"topic": "t", "count": 3}
    assert order == [(number, "delivery.stale", facts) for number in range(3)]


def test_a_listener_that_removes_itself_while_it_hears_disturbs_no_other() -> None:
    events, heard = Events(), Heard()

    def once(name: str, facts: dict[str, Any]) -> None:
        stop()
        heard.append(("once", facts))

    stop = events.listen(once)
    events.listen(listener(heard))
    events.emit("a")
    events.emit("b")
    assert [name for name, _ in heard] == ["once", "a", "b"]


def test_an_event_is_heard_in_the_thread_where_it_happens() -> None:
    events, threads = Events(), []
    events.listen(lambda name, facts: threads.append(threading.current_thread()))
    other = threading.Thread(target=events.emit, args=("x",))
    other.start()
    other.join()
    assert threads == [other]


def test_a_listener_that_raises_is_logged_and_the_others_hear_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events, heard = Events(), Heard()

    def fail(name: str, facts: dict[str, Any]) -> None:
        raise KeyError("topic")

    events.listen(fail)
    events.listen(listener(heard))
    events.emit("slot.lost", slot=1)
    assert heard == [("slot.lost", {"slot": 1})]
    [record] = caplog.records
    assert record.name == "qframe.events"
    assert record.getMessage() == "a listener failed at the event slot.lost"
    assert record.exc_info is not None


def test_no_listener_is_lost_or_left_while_others_come_and_go_in_other_threads() -> None:
    """Each pull and worker adds one at its start and removes it at its end, in a thread."""
    events = Events()
    heard: Heard = []

    def come_and_go() -> None:
        for _ in range(3000):
            stops = [events.count(lambda *_: None), events.listen(lambda *_: None)]
            for stop in stops:
                stop()

    def stay() -> None:
        for _ in range(100):
            events.listen(listener(heard))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=act) for act in (come_and_go, come_and_go, stay, stay)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(events._listeners) == 200
    assert len(events._counters) == 0
    events.emit("delivery.stale")
    assert len(heard) == 200
