"""Schedules in a harness: days pass in milliseconds, and every tick has its own time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from qframe import BadOption, Message, NeedRetry, QFrame, Topic, UnknownTopic
from qframe.testing import Harness

REPORTS = Topic("reports", kind="ordered")


def app_with(when: str, handled: list[datetime], **options: Any) -> QFrame:
    """An app whose handler notes the ticks of its messages."""
    app = QFrame(store="model://")

    @app.cron(when, topic=REPORTS, **options)
    @app.consumer(REPORTS, "g")
    def report(message: Message) -> None:
        handled.append(datetime.fromisoformat(message.headers["tick"]))

    return app


@pytest.mark.parametrize(
    ("begin", "at", "moved"),
    [("2026-03-15", "02:30", (29, "03:00")), ("2026-10-10", "02:30", (25, "02:30"))],
)
def test_the_next_thirty_days_run_across_the_night_when_clocks_change(
    begin: str, at: str, moved: tuple[int, str]
) -> None:
    handled: list[datetime] = []
    app = app_with("30 2 * * *", handled, tz="Europe/Berlin")
    with Harness(app, now=datetime.fromisoformat(begin).replace(tzinfo=UTC)) as harness:
        harness.advance(days=30)
        assert len(harness.published(REPORTS)) == 30
        harness.assert_all_done()
    assert len(handled) == len(set(handled)) == 30
    day, exception = moved
    for tick in handled:
        assert f"{tick:%H:%M}" == (exception if tick.day == day else at)


def test_a_tick_is_handled_at_its_time() -> None:
    handled: list[datetime] = []
    with Harness(
        app_with("0 9 * * 1-5", handled), now=datetime(2026, 3, 27, tzinfo=UTC)
    ) as harness:
        harness.advance(hours=9)
        assert handled == [harness.now]
        harness.drain()
        assert len(handled) == 1


def test_a_drain_waits_for_no_tick_and_passes_none_over() -> None:
    handled: list[datetime] = []
    with Harness(app_with("@hourly", handled), now=datetime(2026, 3, 27, tzinfo=UTC)) as harness:
        harness.drain()
        assert handled == []
        headers = {"tick": "2026-03-27T02:30:00+00:00"}
        harness.publish(REPORTS, None, key="k", delay="150m", headers=headers)
        harness.drain()
    assert [(each.hour, each.minute) for each in handled] == [(1, 0), (2, 0), (2, 30)]


def test_a_worker_that_is_lost_is_followed_by_one_that_makes_up() -> None:
    handled: list[datetime] = []
    app = app_with("* * * * *", handled)
    with Harness(app, now=datetime(2026, 3, 27, tzinfo=UTC)) as harness:
        harness.crash_after("handler", times=3)
        harness.advance(hours=1)
        harness.assert_all_done()
    assert len(set(handled)) == 60
    assert len(handled) == 63


def test_a_stream_whose_message_waits_for_days_passes_ticks_over() -> None:
    log, handled = Topic("log", kind="stream"), []
    app = QFrame(store="model://")

    @app.cron("@daily", topic=log, key="k", overlap="skip")
    @app.consumer(log, "g")
    def report(message: Message) -> None:
        if message.attempt == 1 and not handled:
            raise NeedRetry(delay=60 * 3600)
        handled.append(message.headers["tick"][8:10])

    with Harness(app, now=datetime(2026, 3, 26, 12, tzinfo=UTC)) as harness:
        harness.advance(days=4)  # its topic remembers an id for an hour
        assert handled == ["27", "30"]
        assert app.schedules.get("report").progress.skipped == 2  # type: ignore[union-attr]


def test_what_is_put_at_run_time_ticks_if_the_app_leads() -> None:
    app = QFrame(store="model://", schedules="on")
    with Harness(app, topics=[REPORTS], now=datetime(2026, 3, 27, tzinfo=UTC)) as harness:
        app.schedules.put("late", "@hourly", topic=REPORTS)
        harness.advance(hours=3)
        assert len(harness.published(REPORTS)) == 3
        [late] = app.schedules.find()
        assert late.progress.fired == 3


def test_a_declared_schedule_is_refused_where_it_is_written() -> None:
    app = QFrame(store="model://")
    with pytest.raises(BadOption, match="when"):
        app.cron("61 * * * *", topic=REPORTS)(print)
    app.cron("@daily", topic="nobody", name="one")(print)
    with pytest.raises(BadOption, match="another schedule"):
        app.cron("@daily", topic="nobody", name="one")(print)
    with pytest.raises(UnknownTopic):
        app.run(burst=True)
    app.close()


def test_code_whose_schedule_has_ended_is_imported_and_served() -> None:
    handled: list[datetime] = []
    app = app_with("0 9 * * *", handled, end=datetime(2026, 3, 3, tzinfo=UTC))
    with Harness(app, now=datetime(2026, 3, 1, 12, tzinfo=UTC)) as harness:
        harness.advance(days=30)
    assert [tick.day for tick in handled] == [2]
    with Harness(app, now=datetime(2027, 3, 1, tzinfo=UTC)) as harness:
        harness.advance(days=1)
        app.publish(REPORTS, "by hand", key="a", headers={"tick": "2027-03-02T00:00Z"})
        harness.drain()
    assert handled[1:] == [datetime(2027, 3, 2, tzinfo=UTC)]
