"""Parts of the console by themselves: the sampler, searches, bodies, problems, acts and jobs."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from eventually import eventually
from starlette.requests import Request
from starlette.responses import Response

from qframe.admin.search import Query
from qframe.admin.timer_search import TimerChanges
from qframe.clock import VirtualClock
from qframe.codec import RAW, TYPE_HEADER
from qframe.errors import BadOption, NotAllowed, StoreUnavailable
from qframe.options.report import ConsumerReport
from qframe.roster import Member, Roster
from qframe.stores.model.store import ModelStore
from qframe.stores.records import Record
from qframe.stores.types import Entry
from qframe.topic import Topic
from qframe.web.acts import ACTS, MOST_IDS, delete_topic, drop_outbox, stop_job
from qframe.web.bodies import named_like_a_secret, shown_body, shown_headers
from qframe.web.forms import Form, SentForms, form_of
from qframe.web.jobs import RUNNING, Job, Jobs, JobTask
from qframe.web.problems import problems_of
from qframe.web.query import wanted_of
from qframe.web.rendering import HERE, charts_of, plain, short, span, text
from qframe.web.sampler import ChartPoint, Sampler
from qframe.web.shared import SharedFacts
from qframe.web.timer_acts import cancel_timers, edit_timer, move_timers

TOPIC = Topic("orders", kind="ordered", slots=2)
NOBODY = Roster(0, [], {})


class Scene:
    """A store of a topic with one group, and a sampler of it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(clock=self.clock)
        self.store.declare(TOPIC)
        self.store.subscribe(TOPIC, "billing")
        self.sampler = Sampler(lambda: self.store, roster=lambda *_: NOBODY, clock=self.clock)

    def publish(self, count: int) -> None:
        ids = [f"{self.clock.now_ms()}-{number}" for number in range(count)]
        self.store.publish(TOPIC, [Entry(0, id_, id_, id_, id_, None, b"1") for id_ in ids])


def record(body: bytes, headers: dict[str, str] | None = None) -> Record:
    return Record(
        topic="t", group="g", slot=0, state="todo", subject=None, seq=1, id="i", key=None,
        headers=headers, body=body, published_at_ms=0,
    )  # fmt: skip


def text_of(body: bytes, headers: dict[str, str] | None = None) -> str:
    return shown_body(record(body, headers), named_like_a_secret).text


def test_the_store_is_looked_at_once_a_second_however_many_look_and_never_for_nobody() -> None:
    scene = Scene()
    for _ in range(20):
        scene.sampler.look()
    assert scene.sampler.looks == 1
    scene.clock.advance(60_000)
    assert scene.sampler.looks == 1
    scene.sampler.look()
    assert scene.sampler.looks == 2
    scene.sampler.forget()
    scene.sampler.look()
    assert scene.sampler.looks == 3


def test_a_look_that_is_too_short_for_all_topics_is_gone_on_with() -> None:
    scene = Scene()
    scene.sampler._rounds._seconds = 0.0
    for name in ("a", "b"):
        scene.store.subscribe(scene.store.declare(Topic(name, slots=1)), "g")

    def seen(topic: str | None = None) -> tuple[list[str], int]:
        look = scene.sampler.look(topic)
        assert [each.name for each in look.declared] == ["a", "b", "orders"]
        return [each.name for each in look.topics], look.left_out

    assert seen() == (["a"], 2)
    assert seen("orders") == (["a", "orders"], 1)  # at once, since nobody has looked at it
    looks = scene.sampler.looks
    assert seen("orders") == seen("nobody") == (["a", "orders"], 1)
    assert scene.sampler.looks == looks
    scene.clock.advance(1000)
    assert seen() == (["a", "b", "orders"], 0)


def test_a_store_that_is_away_is_asked_once_a_second_and_what_was_seen_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.publish(3)
    scene.sampler.look()
    away = MagicMock(side_effect=StoreUnavailable("redis", "no reply"))
    monkeypatch.setattr(scene.store, "topics", away)
    scene.clock.advance(1000)
    looks = [scene.sampler.look() for _ in range(5)]
    assert (scene.sampler.looks, len({str(look.error) for look in looks})) == (2, 1)
    assert looks[0].error is not None
    assert looks[0].groups[0].totals.lag == 3


def test_a_store_that_hung_once_is_looked_at_again_at_once_and_a_slow_one_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.sampler.look()
    takes_ms, real = [8000], scene.store.topics

    def slow() -> Any:
        scene.clock.advance(takes_ms[0])
        return real()

    monkeypatch.setattr(scene.store, "topics", slow)
    scene.clock.advance(1000)
    scene.sampler.look()  # hangs, and then replies
    takes_ms[0] = 10
    scene.clock.advance(1000)
    scene.publish(3)
    assert scene.sampler.look().groups[0].totals.lag == 3
    takes_ms[0] = 4000
    for _ in range(2):
        scene.clock.advance(1000)
        scene.sampler.look()
    scene.clock.advance(19_000)
    scene.sampler.look()
    assert scene.sampler.looks == 5
    scene.clock.advance(2000)
    scene.sampler.look()
    assert scene.sampler.looks == 6


def test_what_is_changed_while_it_is_looked_is_seen_by_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    real = scene.store.now_ms

    def changed(*given: Any) -> int:  # at the end of a look
        monkeypatch.setattr(scene.store, "now_ms", real)
        scene.publish(3)
        scene.sampler.forget()
        return real(*given)

    monkeypatch.setattr(scene.store, "now_ms", changed)
    scene.sampler.look()
    assert scene.sampler.look().groups[0].totals.lag == 3


def test_while_a_store_hangs_others_are_told_so_and_shown_what_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    scene.publish(3)
    scene.sampler.look()
    scene.sampler.forget()
    gate, hangs, real = threading.Event(), threading.Event(), scene.store.topics

    def hang() -> Any:
        hangs.set()
        gate.wait(60)
        return real()

    monkeypatch.setattr(scene.store, "topics", hang)
    monkeypatch.setattr("qframe.web.sampler.PATIENCE_S", 0.01)
    thread = threading.Thread(target=scene.sampler.look)
    thread.start()
    hangs.wait(60)
    look = scene.sampler.look()
    gate.set()
    thread.join()
    assert "has not replied" in str(look.error)
    assert look.groups[0].totals.lag == 3


def test_charts_have_the_last_hour_in_steps_of_ten_seconds_and_gaps_where_nobody_looked() -> None:
    scene = Scene()
    for _ in range(400):
        scene.sampler.look()
        scene.clock.advance(10_000)
    assert len(scene.sampler.points("orders", "billing")) == 360
    scene.clock.advance(600_000)
    scene.publish(100)
    scene.sampler.look()
    points = scene.sampler.points("orders", "billing")
    charts = charts_of(points, scene.clock.now_ms())
    assert len(charts["lag"].lines) == 2
    assert charts["lag"].top == 100
    assert charts["arrivals"].last == 0  # nobody knows when in these ten minutes they came


def test_problems_are_told_the_worst_first() -> None:
    scene = Scene()
    scene.publish(5)
    [worst] = problems_of(scene.sampler.look(), scene.sampler.points)
    assert (worst.level, worst.text) == ("bad", "no worker is alive, and 5 wait")
    scene.store.tune(TOPIC, "billing", {"paused": "yes"})
    scene.sampler.forget()
    [only] = problems_of(scene.sampler.look(), scene.sampler.points)
    assert (only.level, only.text) == ("warn", "paused")


def test_a_group_that_follows_a_spark_query_misses_no_worker() -> None:
    scene = Scene()
    scene.publish(5)
    scene.store.tune(TOPIC, "billing", {"reader": "spark"})
    [only] = problems_of(scene.sampler.look(), scene.sampler.points)
    assert (only.level, only.text) == ("note", "5 wait for its Spark query")


def test_slots_without_an_owner_and_a_lag_that_grows_are_problems() -> None:
    scene = Scene()
    scene.publish(5)
    look = scene.sampler.look()
    seen = look.groups[0]._replace(workers=1, unowned=1, late_ms=60_000)
    look = look._replace(groups=(seen,))

    def lags(*lags: int) -> list[ChartPoint]:
        return [ChartPoint(10_000 * number, lag, 0, 0, 0, 0) for number, lag in enumerate(lags)]

    unowned, late = problems_of(look, lambda *_: lags(1, 2, 3, 4, 5))
    assert (unowned.level, unowned.text) == ("bad", "1 of 2 slots have no owner")
    assert (late.level, late.text) == (
        "bad", "the oldest due message waits 60 s, and the lag grows",
    )  # fmt: skip
    _, late = problems_of(look, lambda *_: lags(5, 5, 5, 4, 5))
    assert (late.level, late.text) == ("warn", "the oldest due message waits 60 s")


def test_a_late_group_is_told_with_the_breaker_or_the_limit_that_holds_it_back() -> None:
    scene = Scene()
    scene.publish(5)
    scene.clock.advance(60_000)
    alive = Roster(0, [Member("w1", 0, 10**15)], {})
    sampler = Sampler(lambda: scene.store, roster=lambda *_: alive, clock=scene.clock)

    def told(worker: str, **facts: Any) -> tuple[str, str]:
        report = ConsumerReport(max_attempts=16, **facts)
        scene.store.report(TOPIC, "billing", worker, report.to_json())
        sampler.forget()
        late = problems_of(sampler.look(), sampler.points)[-1]
        return late.text.removeprefix("the oldest due message waits 60 s"), late.remedy

    more = ("", "add workers or threads, or see what its handlers wait for")
    assert told("gone", failures=3, pause_ms=1000) == more  # a worker that lives no more
    assert told("w1") == more
    assert told("w1", rate="10/s", limited=True) == (
        ": the rate limit of 10/s is reached",
        "tune its rate, if what its handlers call allows more",
    )  # fmt: skip
    assert told("w1", failures=3, pause_ms=1000) == (
        ": a circuit breaker is open, after 3 failures in a row",
        "see with what its handlers fail: it closes when one succeeds",
    )  # fmt: skip


def test_recent_deaths_are_a_problem_and_old_ones_a_note() -> None:
    scene = Scene()
    look = scene.sampler.look()
    totals = look.groups[0].totals
    dead = type(totals)(group="billing", dead=7)
    look = look._replace(groups=(look.groups[0]._replace(totals=dead, workers=1, unowned=0),))

    def seen(before: int) -> list[ChartPoint]:
        return [ChartPoint(0, 0, 0, 0, 0, before), ChartPoint(10_000, 0, 0, 0, 0, 7)]

    assert problems_of(look, lambda *_: seen(2))[0].text == "5 died in the last ten minutes"
    assert problems_of(look, lambda *_: seen(7))[0].text == "7 dead letters"


def test_numbers_of_a_body_stand_as_they_were_written() -> None:
    body = b'{"id": 9223372036854775807, "x": 1.10, "y": 1e400, "z": -0.0, "a": 1, "a": 2}'
    text = text_of(body)
    for digits in ("9223372036854775807", "1.10", "1e400", "-0.0", '"a": 1', '"a": 2'):
        assert digits in text


@pytest.mark.parametrize(
    ("body", "headers", "shown"),
    [
        (b'{"user": {"password": {"a": 1}, "n": 1}}', None,
         '{\n  "user": {\n    "password": "***",\n    "n": 1\n  }\n}'),
        (b'{"apiKey": "k", "card_number": 4111}', None,
         '{\n  "apiKey": "***",\n  "card_number": "***"\n}'),
        (b'"redis://user:pw@host"', None, '"redis://***@host"'),
        (b"redis://user:pw@host", None, "redis://***@host"),
        (b"redis://user:pw@host", {TYPE_HEADER: RAW}, "redis://***@host"),
        (b"[]", None, "[]"),
        (b"{}", None, "{}"),
        (b"[true, null]", None, "[\n  true,\n  null\n]"),
        (b"not json", None, "not json"),
        (b'{"a": 1}', {TYPE_HEADER: RAW}, '{"a": 1}'),
        (b"\xff\x00\x01", None, "ff0001"),
        (b"[" * 100_000, None, "[" * 65_536),
    ],
)  # fmt: skip
def test_a_body_is_laid_out_for_people(
    body: bytes, headers: dict[str, str] | None, shown: str
) -> None:
    assert text_of(body, headers) == shown


def test_of_a_body_of_many_bytes_the_first_4096_are_shown() -> None:
    assert text_of(b"\xff" * 100_000).count("ff") == 4096


def test_headers_that_are_named_like_secrets_are_hidden() -> None:
    headers = {"Authorization": "Bearer x", "trace": "abc", "x-api-key": "y"}
    assert shown_headers(headers, named_like_a_secret) == [
        ("Authorization", "***"), ("trace", "abc"), ("x-api-key", "***"),
    ]  # fmt: skip


def test_the_words_of_a_search_are_told_apart() -> None:
    wanted = wanted_of('topic:orders key:"two words" header.trace: body.user.id:77 id:a:b')
    assert wanted.facts == {"topic": "orders", "key": "two words", "id": "a:b"}
    assert wanted.headers == {"trace": None}
    assert wanted.body == {"user.id": "77"}
    assert wanted_of("customer-77").word == "customer-77"
    assert wanted_of("urn:isbn:1").word == "urn:isbn:1"
    assert wanted_of("  ").is_nothing
    assert wanted_of(r"key:#1 id:a\b").facts == {"key": "#1", "id": r"a\b"}


@pytest.mark.parametrize("typed", ["a b", 'key:"open'])
def test_a_search_that_makes_no_sense_is_refused_with_a_remedy(typed: str) -> None:
    with pytest.raises(BadOption):
        wanted_of(typed)


def test_texts_from_outside_cannot_turn_others_round_or_hide() -> None:
    assert plain("a\u202eb\x00c\ufeff") == "a\\u202eb\\u0000c\\ufeff"
    assert plain("ü 漢 😀\n") == "ü 漢 😀\n"
    assert [span(ms) for ms in (5, 1999, 2000, 120_000, 7_200_000, None)] == [
        "5 ms", "1999 ms", "2 s", "2 min", "2 h", "\u2013",
    ]  # fmt: skip


def test_all_script_is_below_60_kb_gzipped_and_what_others_wrote_has_its_licence() -> None:
    static = HERE / "static"
    scripts = {each.name: gzip.compress(each.read_bytes()) for each in static.glob("*.js")}
    assert sum(map(len, scripts.values())) < 60_000
    for name in scripts.keys() - {"console.js", "theme.js"}:
        text = (static / f"{name.partition('.')[0]}.LICENSE.txt").read_text(encoding="utf-8")
        assert "Permission to use, copy, modify" in " ".join(text.split())


# Forms, acts and jobs, without a store: what is confirmed and what is done once.

TASK = JobTask("drop", "drop", "orders", "billing")


def form(**fields: str | list[str]) -> Form:
    return Form({
        name: value if isinstance(value, list) else [value] for name, value in fields.items()
    })  # fmt: skip


def visit(**rights: bool) -> Any:
    """A visit whose verbs note how they are called."""
    made = MagicMock()

    def require(right: str) -> None:
        if not rights.get(right, True):
            raise NotAllowed("ann", right, frozenset())

    made.require = require
    return made


def test_a_job_is_stopped_by_those_who_may_do_what_it_does() -> None:
    job = Job(TASK, "ada")
    looking = visit(drop=False)
    looking.desk.jobs.find.return_value = job
    with pytest.raises(NotAllowed):
        stop_job(looking, form(job="1"))
    job.run(lambda tell: (tell(1), (1, ""))[1])  # type: ignore[func-returns-value]
    assert job.state == "done"


def test_a_form_decides_about_five_hundred_at_once_at_most() -> None:
    looking = visit()
    looking.admin.dead_retry.return_value = 1
    ids = [str(number) for number in range(MOST_IDS + 1)]
    ACTS["retry-dead"].do(looking, form(topic="orders", group="billing", id=ids))
    assert looking.admin.dead_retry.call_args.args[2] == ids[:MOST_IDS]


@pytest.mark.parametrize("typed", [{}, {"confirm": "events"}])
def test_a_topic_is_deleted_by_the_name_that_was_typed(typed: dict[str, str]) -> None:
    looking = visit()
    delete_topic(looking, form(topic="events", **typed))
    looking.admin.delete_topic.assert_called_once_with(
        "events", confirm=typed.get("confirm", ""), force=False
    )


@pytest.mark.parametrize(
    ("act", "fields"),
    [
        ("drop-group", {"topic": "t", "group": "g"}),
        ("drop-dead", {"topic": "t", "group": "g", "until": "1"}),
        ("seek", {"topic": "t", "group": "g", "offsets": "0:0"}),
        ("delete-schedule", {"schedule": "s"}),
        ("cancel-timers", {"topic": "t", "seen": "5"}),
    ],
)
@pytest.mark.parametrize("typed", [{}, {"confirm": "another"}])
def test_what_is_for_good_is_confirmed_by_its_name(
    act: str, fields: dict[str, str], typed: dict[str, str]
) -> None:
    looking = visit()
    with pytest.raises(BadOption, match="confirm"):
        ACTS[act].do(looking, form(**fields, **typed))
    looking.desk.jobs.start.assert_not_called()


def test_timers_are_counted_without_a_confirmation_and_no_later_ones_are_changed() -> None:
    looking = visit()
    # The timers are in a database; without a topic it is the clock of Redis.
    looking.desk.app.store.now_ms = lambda topic=None: 4 if topic is None else 9
    looking.admin.cancel_timers.return_value = looking.admin.move_timers.return_value = (
        TimerChanges()
    )
    for fields, is_dry, until_ms in (({}, True, 9), ({"seen": "5", "confirm": "t"}, False, 5)):
        for act, verb in ((cancel_timers, "cancel_timers"), (move_timers, "move_timers")):
            act(looking, form(topic="t", shift="1h", **fields))
            looking.desk.jobs.start.call_args.args[1](lambda _: None)
            given = getattr(looking.admin, verb).call_args.kwargs
            assert (given["dry_run"], given["published_until"]) == (is_dry, until_ms)


def test_timers_are_changed_by_all_fields_by_which_they_were_counted() -> None:
    looking = visit()
    fields = {
        "topic": "t", "key": "k", "state": "waiting", "tag": "red", "shift": "1h", "seen": "5",
        "since": "2026-01-01T00:00", "until": "2027-01-01T00:00",
    }  # fmt: skip
    move_timers(looking, form(**fields))
    assert looking.desk.jobs.start.call_args.args[0].form == fields


def test_a_body_is_edited_by_those_who_may_see_it() -> None:
    looking = visit(body=False)
    with pytest.raises(NotAllowed):
        edit_timer(looking, form(topic="t", key="k", body="1"))
    looking.admin.edit_timer.assert_not_called()


def test_of_what_is_dropped_from_an_outbox_it_is_told_what_may_be_published() -> None:
    looking = visit()
    looking.admin.outbox_waiting.return_value = [
        SimpleNamespace(row=SimpleNamespace(sent_at=sent_at)) for sent_at in (None, None, 5)
    ]
    looking.admin.outbox_drop.return_value = 3
    told = drop_outbox(looking, form(outbox="0", id=["a", "b", "c"]))
    assert "3 messages" in told
    assert "1 of them may be in their topics already" in told


def test_a_form_is_done_once_for_each_act_also_where_it_comes_twice_at_once() -> None:
    sent, done, begun, go_on = SentForms(), [], threading.Event(), threading.Event()

    def make() -> Response:
        done.append("")
        begun.set()
        go_on.wait(10)
        return Response()

    one = form(once="1", topic="t")
    threads = [threading.Thread(target=sent.reply, args=("skip", one, make)) for _ in range(2)]
    threads[0].start()
    begun.wait(10)
    threads[1].start()
    threads[1].join(0.01)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(done) == 1
    sent.reply("unblock", one, make)
    assert len(done) == 2


def test_forms_are_kept_up_to_a_number() -> None:
    sent = SentForms()
    for number in range(501):
        sent.reply("skip", form(once=str(number)), Response)
    assert len(sent._sent) == 500


def test_a_hundred_jobs_of_one_visitor_leave_those_of_another_and_those_that_run() -> None:
    ends, go_on = threading.Semaphore(0), threading.Event()
    jobs = Jobs(ends.release)

    def ended(by: str) -> Job:
        job = jobs.start(TASK, lambda _: (0, ""), by=by)
        assert ends.acquire(timeout=60)
        return job

    running = jobs.start(TASK, lambda _: (int(go_on.wait(60)), ""), by="greedy")
    others, first = ended("ada"), ended("greedy")
    for _ in range(100):
        ended("greedy")
    assert jobs.find(first.number) is None
    assert None not in (jobs.find(running.number), jobs.find(others.number))
    assert len(jobs._jobs) == 100
    go_on.set()


def test_one_visitors_jobs_leave_room_for_those_of_the_next() -> None:
    jobs, go_on = Jobs(lambda: None), threading.Event()

    def start(by: str) -> Job:
        return jobs.start(TASK, lambda _: (int(go_on.wait(60)), ""), by=by)

    running = [start("greedy") for _ in range(RUNNING // 2)]
    with pytest.raises(BadOption, match=r"as many jobs of yours run.*stop one"):
        start("greedy")
    running.append(start("ada"))
    go_on.set()
    eventually(lambda: {job.state for job in running} == {"done"})
    eventually(lambda: jobs._running.take("greedy"))


def test_pages_are_looked_at_anew_once_a_job_has_ended_and_not_before() -> None:
    go_on, looked = threading.Event(), threading.Event()
    started: list[Job] = []
    states: list[list[str]] = []

    def look() -> None:
        states.append([job.state for job in started])
        looked.set()

    started.append(Jobs(look).start(TASK, lambda _: (int(go_on.wait(60)), ""), by="ada"))
    go_on.set()
    assert looked.wait(60)
    assert states == [["done"]]


def test_a_job_that_is_stopped_counts_its_last_step() -> None:
    job = Job(TASK, "ada")

    def act(tell: Callable[[int], object]) -> tuple[int, str]:
        job.stop()
        tell(500)
        return 1000, ""

    job.run(act)
    assert (job.state, job.done) == ("stopped", 500)


def test_a_job_ends_whatever_happens_in_it() -> None:
    def fail(_tell: object) -> tuple[int, str]:
        raise RuntimeError("secret")

    job = Job(TASK, "ada")
    with pytest.raises(RuntimeError):
        job.run(fail)
    assert (job.state, "secret" in job.error) == ("failed", False)


@pytest.mark.parametrize(
    ("body", "is_found"),
    [
        ({"card": '{"cvv":"123"}'}, False),
        ({"card": '{"cvv":"***"}'}, True),
        ({"url": "redis://u:123@db/0"}, False),
        ({"url": "redis://***@db/0"}, True),
        ({"n": "7"}, True),
    ],
)
def test_a_value_that_is_hidden_is_found_by_nobody(body: dict[str, str], is_found: bool) -> None:
    asked = record(b'{"card": {"cvv": "123"}, "url": "redis://u:123@db/0", "n": 7}')
    assert Query(body=body, redact=named_like_a_secret).fits(asked) is is_found


def test_facts_that_are_no_longer_fresh_are_not_kept() -> None:
    clock = VirtualClock()
    shared = SharedFacts(clock)
    for number in range(3):
        assert shared.get(number, 1.0, lambda: {"body": b"x"}) == {"body": b"x"}
    assert len(shared._pages) == 3
    clock.advance(1000)
    shared.get("other", 1.0, dict)
    assert list(shared._pages) == ["other"]


def test_who_waits_for_the_page_of_another_is_told_when_that_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qframe.web.shared.PATIENCE_S", 0.01)
    shared, begun, go_on = SharedFacts(VirtualClock()), threading.Event(), threading.Event()

    def make() -> dict[str, Any]:
        begun.set()
        go_on.wait(60)
        return {}

    greedy = threading.Thread(target=shared.get, args=("/slow", 1.0, make))
    greedy.start()
    assert begun.wait(60)
    with pytest.raises(StoreUnavailable, match="it has not replied"):
        shared.get("/slow", 1.0, make)
    assert shared.get("/quick", 1.0, dict) == {}
    go_on.set()
    greedy.join()


def test_a_look_that_is_fresh_is_had_while_another_page_has_its_own_topic_looked_at() -> None:
    scene = Scene()
    scene.sampler.look()
    with scene.sampler._taking:  # as by a page that looks at a topic of its own
        assert scene.sampler.look().error is None


def test_a_form_that_does_not_come_whole_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qframe.web.forms.FORM_S", 0.01)

    async def receive() -> Any:
        await asyncio.Event().wait()

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    assert asyncio.run(form_of(request)) is None


def test_texts_from_outside_are_escaped_and_cut_in_titles_too() -> None:
    assert text("<b>") == "<bdi>&lt;b&gt;</bdi>"
    assert short("<b>") == "<bdi>&lt;b&gt;</bdi>"
    assert len(short("x" * 10**6)) < 3000
    assert "\u202e" not in text("a\u202eb")
