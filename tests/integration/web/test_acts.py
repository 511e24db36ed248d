"""The forms of the console: each does what it says, for those who may, and is audited."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from consoling import (
    BODY,
    LATER,
    SECRET,
    browser,
    forms_of,
    shop,
    text_of,
    waiting_outbox,
)
from eventually import eventually
from httpx import Response
from sqlalchemy import create_engine
from starlette.testclient import TestClient

from qframe import Outbox, Outgoing, QFrame, Topic
from qframe.admin.rights import ROLES
from qframe.codec import own_headers, tags_of
from qframe.web.acts import ACTS

FROM = "console 127.0.0.1, known by the address"
GROUP = {"topic": "orders", "group": "billing"}
KEY = {**GROUP, "key": "customer-77"}
FORMS: dict[str, dict[str, Any]] = {
    "pause": {**GROUP, "why": "the bank is closed"},
    "resume": GROUP,
    "tune": {**GROUP, "threads": "3", "rate": "5/s", "in_flight": ""},
    "seek": {"topic": "events", "group": "stats", "offsets": "0:0,1:0", "confirm": "stats"},
    "ask-stacks": GROUP,
    "skip": {**KEY, "why": "two accounts"},
    "unblock": KEY,
    "retry-dead": {**GROUP, "id": ["dead-0"]},
    "drop-dead": {**GROUP, "id": ["dead-1"]},
    "stop-job": {"job": "none"},
    "drop-group": {"topic": "events", "group": "stats", "confirm": "stats", "force": "yes"},
    "delete-topic": {"topic": "events", "confirm": "events", "force": "yes"},
    "move-timer": {"topic": "later", "key": "timer-0", "at": "2031-01-01T00:00"},
    "cancel-timer": {"topic": "later", "key": "timer-1"},
    "edit-timer": {"topic": "later", "key": "timer-2", "body": '{"n": 36893488147419103232}'},
    "move-timers": {"topic": "later", "shift": "1h"},
    "cancel-timers": {"topic": "later"},
    "retry-outbox": {"outbox": "0"},
    "drop-outbox": {"outbox": "0", "id": ["refused"]},
    "pause-schedule": {"schedule": "report"},
    "resume-schedule": {"schedule": "report"},
    "run-schedule": {"schedule": "report"},
    "delete-schedule": {"schedule": "report", "confirm": "report"},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QFrame]:
    """An app that no test changes."""
    with shop(f"sqlite:///{tmp_path_factory.mktemp('acts') / 'q.db'}?synchronous=normal") as app:
        yield app


@pytest.fixture
def app(tmp_path: Path) -> Iterator[QFrame]:
    with shop(f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal") as app:
        yield app


def test_every_act_has_a_form_in_these_tests() -> None:
    assert set(FORMS) == set(ACTS)


@pytest.mark.parametrize("role", ROLES)
def test_no_act_changes_anything_without_its_right(shared: QFrame, role: str) -> None:
    heard: list[str] = []
    stop = shared.events.listen(lambda name, facts: heard.append(name))
    before = repr(shared.admin.topics())
    web = browser(shared, role)
    for name, form in FORMS.items():
        if ACTS[name].right not in ROLES[role]:
            reply = web.post(f"/do/{name}", data=form)
            assert reply.status_code == 403, name
            assert "has no right to" in text_of(reply.text)
    for route in ("/do/pause", "/do/drop-dead"):
        assert web.get(route).status_code == 405
    stop()
    assert repr(shared.admin.topics()) == before
    assert not heard


@pytest.mark.gate
def test_each_act_does_what_it_says_and_leaves_one_audit_event_in_the_visitors_name(
    app: QFrame,
) -> None:
    heard: list[dict[str, Any]] = []
    app.events.listen(lambda name, facts: heard.append(facts) if name == "admin.action" else None)
    web = browser(app)
    said = {}
    for name in (
        "pause", "resume", "tune", "ask-stacks", "unblock", "skip", "retry-dead", "drop-dead",
        "move-timer", "cancel-timer", "edit-timer", "retry-outbox", "drop-outbox",
        "pause-schedule", "resume-schedule", "run-schedule",
        "delete-schedule", "seek", "drop-group", "delete-topic",
    ):  # fmt: skip
        reply = web.post(f"/do/{name}", data=FORMS[name])
        assert reply.status_code == 200, name
        said[name] = text_of(reply.text)
        assert "Nothing was changed" not in said[name], said[name]
    assert "orders/billing is paused" in said["pause"]
    assert "Message blocked was skipped" in said["skip"]
    assert app.admin.tuned("orders", "billing").threads == 3
    [moved] = app.admin.timer("later", "timer-0")
    assert moved.due_ms == 1_924_992_000_000
    assert not app.admin.timer("later", "timer-1")
    assert app.admin.timer("later", "timer-2")[0].body == b'{"n": 36893488147419103232}'
    assert "1 message of shop" in said["drop-outbox"]
    outbox = text_of(web.get("/outbox").text)
    assert "refused: " in outbox  # what stood behind it is first now
    assert not re.search(r"(?<!\d)0 refused", outbox)  # a time that ends in 0 may stand there
    assert "2 waiting" in outbox
    assert "has published message cron-now/report/" in said["run-schedule"]
    assert app.schedules.get("report") is None
    assert "events" not in [each.name for each in app.admin.topics()]
    verbs = [each["verb"] for each in heard]
    assert verbs == [
        "pause", "resume", "tune", "ask_stacks", "unblock", "skip", "dead_retry", "dead_drop",
        "move_timer", "cancel_timer", "edit_timer", "outbox_retry", "outbox_drop",
        "pause_schedule", "resume_schedule", "run_schedule",
        "delete_schedule", "seek", "drop_group", "delete_topic",
    ]  # fmt: skip
    assert {(each["by"], each["source"]) for each in heard} == {("local", FROM)}
    audit = text_of(web.get("/audit").text)
    assert "the bank is closed" in audit
    assert audit.count(FROM) == len(verbs)


def test_two_operators_who_skip_at_once_skip_the_message_that_they_have_seen(app: QFrame) -> None:
    web = browser(app)
    pages = [web.get("/topics/orders/billing/key?key=customer-77").text for _ in range(2)]
    first, second = (form_to(page, "skip") for page in pages)
    assert "Message blocked was skipped" in text_of(web.post("/do/skip", data=first).text)
    again = text_of(web.post("/do/skip", data=second).text)
    assert "Nothing was changed: message" in again
    assert "it does not block key customer-77 any more, but behind does" in again
    assert [each.id for each in app.admin.dead("orders", "billing")][3:] == ["blocked"]


def test_a_form_that_is_sent_twice_is_done_once_and_has_the_same_reply(app: QFrame) -> None:
    web = browser(app)
    form = form_to(web.get("/schedules").text, "run-schedule")
    replies = [web.post("/do/run-schedule", data=form).text for _ in range(2)]
    said = [re.findall(r"cron-now/report/\w+", text_of(reply)) for reply in replies]
    assert said[0] == said[1] != []
    web.post("/do/run-schedule", data=form_to(replies[1], "run-schedule"))
    assert sum(each.verb == "run_schedule" for each in app.admin.audit()) == 2

    [timer] = app.admin.timer("later", "timer-1")
    counted = ended(web, web.post("/do/move-timers", data=FORMS["move-timers"]))
    form = form_to(counted, "move-timers")
    with ThreadPoolExecutor(2) as pool:
        jobs = list(pool.map(lambda _: web.post("/do/move-timers", data=form), range(2)))
    assert jobs[0].url == jobs[1].url
    ended(web, jobs[0])
    assert app.admin.timer("later", "timer-1")[0].due_ms == (timer.due_ms or 0) + 3_600_000


def test_a_form_that_could_not_be_done_is_tried_again_when_it_is_sent_again(app: QFrame) -> None:
    web = browser(app)
    form = {**form_to(web.get("/topics/events/stats").text, "pause"), "topic": "late"}
    assert "nobody has declared it" in text_of(web.post("/do/pause", data=form).text)
    app.declare(Topic("late", slots=1))
    app.store.subscribe(Topic("late", slots=1), "stats")
    assert "late/stats is paused" in text_of(web.post("/do/pause", data=form).text)


def test_decisions_about_nothing_say_so(app: QFrame) -> None:
    web = browser(app)
    page = web.get("/topics/orders/billing/dead").text
    form = next(fields for _, fields in forms_of(page) if "until" not in fields)
    for act in ("retry-dead", "drop-dead"):  # neither box is ticked
        reply = text_of(web.post(f"/do/{act}", data=form).text)
        assert "Nothing was changed: id None: none was chosen; tick those that are meant" in reply
    assert "none was chosen" in text_of(web.post("/do/drop-outbox", data={"outbox": "0"}).text)
    assert "1 dead letter was retried" in text_of(
        web.post("/do/retry-dead", data={**GROUP, "id": ["dead-0"]}).text
    )
    for act, ids, gone in (
        ("retry-dead", ["dead-0"], "it is no dead letter of orders/billing any more"),
        ("drop-dead", ["dead-0", "no"], "none of them is a dead letter of orders/billing any more"),
    ):  # fmt: skip
        reply = text_of(web.post(f"/do/{act}", data={**GROUP, "id": ids}).text)
        assert "Nothing was changed" in reply
        assert gone in reply
    web.post("/do/unblock", data=KEY)
    assert "Nothing of key customer-77 waits" in text_of(web.post("/do/unblock", data=KEY).text)


def test_all_seen_leaves_alone_what_died_after_the_page_was_shown(app: QFrame) -> None:
    web = browser(app)
    page = web.get("/topics/orders/billing/dead").text
    [form] = [
        fields for action, fields in forms_of(page)
        if action == "/do/drop-dead" and "until" in fields
    ]  # fmt: skip
    app.admin.skip("orders", "billing", "customer-77")  # dies after the page was shown
    form = {name: html.unescape(value) for name, value in form.items()}
    assert "it is another name" in text_of(web.post("/do/drop-dead", data=form).text)
    assert len(app.admin.dead("orders", "billing")) == 4
    job = web.post("/do/drop-dead", data={**form, "confirm": "billing"})
    assert job.url.path.startswith("/jobs/")
    eventually(lambda: "Drop: done" in text_of(web.get(job.url.path).text), within=30)
    assert "3 of 3 done" in text_of(web.get(job.url.path).text)
    assert [each.id for each in app.admin.dead("orders", "billing")] == ["blocked"]


def let_die(app: QFrame, topic: Topic, bodies: range, error_of: Callable[[int], Exception]) -> None:
    """Has messages of a topic die one after the other, from their handlers' errors."""
    with QFrame(app.settings.store) as other:

        @other.consumer(topic, group="g", max_attempts=1, threads=1)
        def fail(body: int) -> None:
            raise error_of(body)

        other.events.listen(lambda name, facts: None)
        other.publish_many(topic, [Outgoing(body, id=f"{topic.name}-{body}") for body in bodies])
        other.run(burst=True)


def test_the_dead_letters_of_a_cause_are_found_behind_hundreds_of_others(app: QFrame) -> None:
    def error_of(body: int) -> Exception:
        return KeyError(body) if body in (5, 550) else ValueError(body)

    let_die(app, Topic("rare", slots=1), range(552), error_of)
    web = browser(app)
    [cause] = [each for each in app.admin.dead_causes("rare", "g").causes if each.count == 2]
    address = f"/topics/rare/g/dead?cause={cause.name}"
    page = web.get(address).text
    assert re.findall(r"choose (rare-\d+)", page) == ["rare-5"]
    [following] = re.findall(r'<a href="([^"]+)">the next ones</a>', page)
    page = web.get(html.unescape(following)).text
    assert re.findall(r"choose (rare-\d+)", page) == ["rare-550"]
    assert "the next ones" not in page
    web.post("/do/retry-dead", data={"topic": "rare", "group": "g", "id": ["rare-5"]})
    page = web.get(address).text
    assert "None of the 500 dead letters that were looked at died of this cause" in text_of(page)
    [following] = re.findall(r'<a href="([^"]+)">look at the next ones</a>', page)
    assert "choose rare-550" in web.get(html.unescape(following)).text

    told: list[int] = []  # a job can be stopped also while it finds nothing of its cause
    app.admin.dead_retry("rare", "g", "all", cause=cause.name, on_progress=told.append)
    assert told == [0, 1]


def test_a_job_can_be_stopped_between_two_steps(
    app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_die(app, Topic("many", slots=1), range(1200), ValueError)
    web = browser(app)
    page = web.get("/topics/many/g/dead?all=yes").text
    form = next(
        fields for action, fields in forms_of(page)
        if action == "/do/retry-dead" and fields.get("total") == "1200"
    )  # fmt: skip
    steps: list[int] = []
    gate = threading.Event()
    real = app.store.retry_dead

    def waiting(*given: Any, **more: Any) -> int:
        steps.append(1)
        if len(steps) == 2:
            gate.wait(60)
        return real(*given, **more)

    monkeypatch.setattr(app.store, "retry_dead", waiting)
    job = web.post("/do/retry-dead", data={**form, "cause": ""})
    eventually(lambda: len(steps) == 2, within=30)
    assert "Retry: running" in text_of(job.text)
    [stop] = [fields for action, fields in forms_of(job.text) if action == "/do/stop-job"]
    web.post("/do/stop-job", data=stop)
    gate.set()
    eventually(lambda: "Retry: stopped" in text_of(web.get(job.url.path).text), within=30)
    assert len(app.admin.dead("many", "g", 2000)) == 200
    assert "1\u202f000 of 1\u202f200 done" in web.get(job.url.path).text


def test_a_form_that_cannot_be_done_leads_back_with_the_reason(shared: QFrame) -> None:
    web = browser(shared)
    for name, form, reason in (
        ("skip", {**GROUP, "key": "none"}, "no message of it is there"),
        ("tune", {**GROUP, "rate": "fast"}, "rate"),
        ("tune", {**GROUP, "threads": "two"}, "no whole number"),
        ("drop-group", {**GROUP, "confirm": "other"}, "type billing to confirm"),
        ("seek", {**FORMS["seek"], "offsets": "x"}, "no list of slots"),
        ("cancel-timer", {"topic": "later", "key": "none"}, "not there any more"),
        ("move-timer", {"topic": "later", "key": "timer-0", "at": "soon"}, "no moment"),
        ("pause", {"topic": "orders"}, "no value for it"),
        ("stop-job", {"job": "1"}, "knows none"),
        ("edit-timer", {**FORMS["edit-timer"], "body": "{"}, "it is not JSON"),
        ("edit-timer", {**FORMS["edit-timer"], "key": "none"}, "not there any more"),
        ("move-timers", {"topic": "none", "shift": "1h"}, "none"),
        ("move-timers", {"topic": "later", "at": "soon"}, "no moment"),
        ("cancel-timers", {"topic": "later", "seen": "1", "confirm": "x"}, "type later"),
        ("drop-outbox", {"outbox": "0", "id": ["none"]}, "none that was chosen waits"),
        ("retry-outbox", {"outbox": "7"}, "this console has none there"),
        ("pause-schedule", {"schedule": "none"}, "none of this name"),
        ("delete-schedule", {"schedule": "report", "confirm": "x"}, "type report to confirm"),
    ):  # fmt: skip
        reply = web.post(f"/do/{name}", data={**form, "back": "/topics/orders?x=1"})
        assert reply.url.path == "/topics/orders"
        assert "Nothing was changed" in text_of(reply.text)
        assert reason in text_of(reply.text), (name, text_of(reply.text))
    assert web.post("/do/fly", data={}).status_code == 400


def ended(web: TestClient, job: Response) -> str:
    """The page of a job that has ended."""
    eventually(lambda: ": running" not in text_of(web.get(job.url.path).text), within=30)
    return web.get(job.url.path).text


def form_to(page: str, act: str) -> dict[str, str]:
    """The fields of the one form of a page that does an act."""
    [fields] = [fields for action, fields in forms_of(page) if action == f"/do/{act}"]
    return {name: html.unescape(value) for name, value in fields.items()}


@pytest.mark.gate
def test_all_timers_that_were_found_are_counted_first_and_later_ones_are_left_alone(
    app: QFrame,
) -> None:
    heard: list[dict[str, Any]] = []
    app.events.listen(lambda name, facts: heard.append(facts) if name == "admin.action" else None)
    web = browser(app)
    due = {f"timer-{each}": app.admin.timer("later", f"timer-{each}")[0].due_ms for each in (0, 1)}
    page = web.get("/timers?topic=later&until=2100-01-01T00:00").text
    found = next(fields for action, fields in forms_of(page) if action == "/do/move-timers")
    counted = ended(web, web.post("/do/move-timers", data={**found, "shift": "1h"}))
    assert "3 timers are found; nothing is changed yet" in text_of(counted)
    assert app.admin.timer("later", "timer-0")[0].due_ms == due["timer-0"]
    app.publish(LATER, BODY, key="set-later", delay="1h")
    [set_later] = app.admin.timer("later", "set-later")
    moved = ended(web, web.post("/do/move-timers", data=form_to(counted, "move-timers")))
    assert "Move: done" in text_of(moved)
    assert "3 of 3 done" in text_of(moved)
    assert app.admin.timer("later", "timer-1")[0].due_ms == due["timer-1"] + 3_600_000
    assert app.admin.timer("later", "set-later") == [set_later]

    only = {"topic": "later", "key": "timer-2"}
    counted = ended(web, web.post("/do/cancel-timers", data=only))
    form = form_to(counted, "cancel-timers")
    assert "it is another name" in text_of(web.post("/do/cancel-timers", data=form).text)
    ended(web, web.post("/do/cancel-timers", data={**form, "confirm": "later"}))
    left = {each.key for each in app.admin.timers("later").records}
    assert left == {"timer-0", "timer-1", "set-later"}
    done = [(each["verb"], each["count"], each["by"]) for each in heard]
    assert done == [("move_timers", 3, "local"), ("cancel_timers", 1, "local")]


def test_a_body_that_is_hidden_in_part_is_not_there_to_be_stored_over_what_it_hides(
    app: QFrame,
) -> None:
    app.publish(LATER, {"n": 2**60 + 3}, key="plain", delay="1h", headers={"h": "x"}, tags=["a"])
    app.publish(LATER, {"password": SECRET, "n": 1}, key="secret", delay="1h")
    web = browser(app)
    pages = {key: web.get(f"/timers?topic=later&key={key}").text for key in ("plain", "secret")}
    texts = {key: re.findall(r"<textarea[^>]*>([^<]*)<", page) for key, page in pages.items()}
    assert str(2**60 + 3) in texts["plain"][0]
    assert texts["secret"] == [""]
    assert "<textarea" not in browser(app, "reader").get("/timers?topic=later&key=plain").text
    web.post("/do/edit-timer", data={"topic": "later", "key": "plain", "body": "[1]"})
    [edited] = app.admin.timer("later", "plain")
    assert (edited.body, tags_of(edited.headers)) == (b"[1]", ("a",))
    assert own_headers(edited.headers) == {"h": "x"}


def test_an_outbox_whose_database_is_away_says_so_and_the_others_are_shown(app: QFrame) -> None:
    away = Outbox(create_engine("postgresql+psycopg://me:hunter2@127.0.0.1:1/x"))
    page = browser(app, outboxes=[away, waiting_outbox()]).get("/outbox")
    assert page.status_code == 200
    assert "its database cannot be used" in page.text
    assert "hunter2" not in page.text
    assert "3 waiting, 2 refused" in text_of(page.text)
