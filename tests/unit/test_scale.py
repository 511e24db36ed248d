"""`admin.scale`, `qframe groups scale`, `/scale`: an autoscaler's numbers, what counts as load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from qframe import BadOption, Message, QFrame, Topic, UnknownGroup
from qframe.admin.scale import Scale, scale_of
from qframe.admin.totals import Totals
from qframe.cli.main import cli
from qframe.cli.scale import ScaleRoute
from qframe.http_port import HttpRequest
from qframe.options.tuning import Tuning

TIMERS = Topic("timers", kind="delay", slots=4)
NEXT_MONTH_S = 30 * 86_400


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QFrame]:
    monkeypatch.setenv("QFRAME_STORE", f"sqlite:///{tmp_path / 'q.db'}")
    with QFrame() as app:

        @app.consumer(TIMERS, group="g")
        def handle(message: Message) -> None: ...

        app.declare(TIMERS)
        yield app


def scaled(totals: Totals, *, before: Scale | None = None, **more: Any) -> Scale:
    terms: dict[str, Any] = {"slots": 4, "workers": 2, "now_ms": 100_000, "per_worker": 10} | more
    return scale_of("orders", totals, before=before, **terms)


def test_the_load_is_what_is_due_and_what_is_in_flight() -> None:
    found = scaled(Totals(group="g", waiting=1000, todo=12, doing=3, oldest_ms=97_500))
    assert (found.due, found.in_flight, found.load) == (12, 3, 15)
    assert found.oldest_due_s == 2.5
    assert found.wanted_workers == 2


def test_nothing_is_late_that_is_yet_to_come_by_another_clock_or_to_join_its_line() -> None:
    assert scaled(Totals(group="g", todo=1, oldest_ms=100_001)).oldest_due_s == 0
    assert scaled(Totals(group="g", waiting=1, oldest_ms=97_500)).oldest_due_s == 0


def test_a_group_whose_last_message_is_in_flight_keeps_its_worker() -> None:
    assert scaled(Totals(group="g", doing=1)).wanted_workers == 1
    assert scaled(Totals(group="g", waiting=10**8)).wanted_workers == 0


def test_never_are_more_workers_wanted_than_there_are_slots() -> None:
    assert scaled(Totals(group="g", todo=10**8)).wanted_workers == 4


def test_a_paused_group_wants_workers_for_what_is_in_flight_alone() -> None:
    totals = Totals(group="g", todo=500, doing=11, tuning=Tuning(paused=True))
    found = scaled(totals)
    assert (found.load, found.wanted_workers, found.paused) == (511, 2, True)


def test_rates_are_those_since_an_earlier_look() -> None:
    first = scaled(Totals(group="g", published=100, settled=50))
    assert (first.arrival_per_s, first.handled_per_s) == (None, None)
    later = Totals(group="g", published=160, settled=70, dead=10)
    found = scaled(later, before=first, now_ms=104_000)
    assert (found.arrival_per_s, found.handled_per_s) == (15.0, 7.5)
    moved = scaled(Totals(group="g"), before=first, now_ms=104_000)
    assert (moved.arrival_per_s, moved.handled_per_s) == (0.0, 0.0)
    assert scaled(later, before=first).arrival_per_s is None


def test_timers_of_next_month_are_no_load(app: QFrame) -> None:
    app.publish_many(TIMERS, [1, 2, 3])
    app.publish(TIMERS, 4, delay=NEXT_MONTH_S)
    found = app.admin.scale(TIMERS, "g", per_worker=2)
    assert (found.due, found.load, found.published) == (3, 3, 4)
    assert (found.slots, found.workers, found.wanted_workers) == (4, 0, 2)


def test_wrong_names_and_numbers_are_refused(app: QFrame) -> None:
    with pytest.raises(UnknownGroup):
        app.admin.scale(TIMERS, "nobody")
    with pytest.raises(BadOption, match=r"per_worker .*whole number"):
        app.admin.scale(TIMERS, "g", per_worker=0)


def test_the_command_prints_the_same_as_json(app: QFrame) -> None:
    app.publish_many(TIMERS, [1, 2, 3])
    words = ["groups", "scale", "timers", "g", "--per-worker", "2", "--over", "10ms"]
    ran = CliRunner().invoke(cli, [*words, "--json"], catch_exceptions=False)
    found = json.loads(ran.output)
    assert list(found) == list(Scale.__struct_fields__)
    assert (found["load"], found["wanted_workers"], found["arrival_per_s"]) == (3, 2, 0.0)
    ran = CliRunner().invoke(cli, [*words, "--over", "0"], catch_exceptions=False)
    assert "wanted" in ran.output


def ask(route: ScaleRoute, topic: str, group: str, **query: str) -> tuple[int, Any]:
    [found] = route.routes().values()
    assert found.waits
    assert found.guarded
    reply = found.reply(HttpRequest({"topic": topic, "group": group}, query))
    return reply.status, json.loads(reply.body)


def test_the_route_replies_for_the_app_that_knows_the_topic(app: QFrame, tmp_path: Path) -> None:
    with QFrame(f"sqlite:///{tmp_path / 'other.db'}") as other:
        other.declare(Topic("mail", slots=2))
        route = ScaleRoute(lambda: [other, app])
        app.publish_many(TIMERS, [1, 2, 3])
        status, first = ask(route, "timers", "g", per_worker="1")
        assert (status, first["load"], first["wanted_workers"]) == (200, 3, 3)
        assert first["arrival_per_s"] is None
        status, second = ask(route, "timers", "g")
        assert second["arrival_per_s"] in (0.0, None)  # None within the same millisecond
        assert ask(route, "nothing", "g")[0] == 404
        assert ask(route, "timers", "nobody")[0] == 404
        assert ask(route, "timers", "g", per_worker="-1")[0] == 400
        status, refused = ask(route, "timers", "g", perworker="20")
        assert status == 400
        assert "did you mean 'per_worker'? there are: per_worker" in refused["error"]


def test_a_store_that_is_away_is_told_with_status_503() -> None:
    with QFrame("redis://127.0.0.1:1") as app:
        status, said = ask(ScaleRoute(lambda: [app]), "timers", "g")
    assert status == 503
    assert "127.0.0.1:1" in said["error"]
