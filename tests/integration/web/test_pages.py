"""The pages of the console over a store with messages in every state, for every role."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from consoling import ADDRESSES, BODY, ORDERS, SECRET, browser, forms_of, shop, text_of
from databases import EPOCH, entry

from qframe import Outgoing, QFrame, Topic
from qframe.admin.rights import ROLES
from qframe.clock import VirtualClock
from qframe.outcomes import Verdict
from qframe.schedules.records import GROUP as LEADER
from qframe.schedules.records import TOPIC as SCHEDULES
from qframe.stores.types import PullRequest, PullTerms, Settlement
from qframe.web.acts import ACTS
from qframe.web.bodies import named_like_a_secret
from qframe.web.pages import PAGES, schedules


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QFrame]:
    url = f"sqlite:///{tmp_path_factory.mktemp('web') / 'q.db'}?synchronous=normal"
    with shop(url) as app:
        yield app


def test_each_page_has_an_address_in_these_tests() -> None:
    assert {page.path for page in PAGES} == {*ADDRESSES, "/jobs/{number}"}


def test_each_route_is_a_page_a_form_or_one_that_these_tests_know(app: QFrame) -> None:
    web = browser(app, "viewer")
    routes = web.app._inner.routes  # type: ignore[attr-defined]
    found = {(route.path, *sorted(getattr(route, "methods", ()))) for route in routes}
    assert found == {
        *((page.path, "GET", "HEAD") for page in PAGES), ("/body", "GET", "HEAD"),
        ("/do/{act}", "POST"), ("/login", "GET", "HEAD"), ("/login", "POST"), ("/logout", "POST"),
        ("/static",),
    }  # fmt: skip
    for addresses in ADDRESSES.values():
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert web.request(method, addresses[0]).status_code == 405


@pytest.mark.gate
@pytest.mark.parametrize("role", ROLES)
def test_every_page_is_shown_to_every_role_and_nothing_is_changed_by_looking(
    app: QFrame, role: str
) -> None:
    heard: list[dict[str, Any]] = []
    stop = app.events.listen(lambda name, facts: heard.append({"event": name, **facts}))
    before = app.admin.topics()
    web = browser(app, role)
    for addresses in ADDRESSES.values():
        for address in addresses:
            reply = web.get(address)
            assert reply.status_code == 200, (address, text_of(reply.text))
            assert (
                "default-src 'none'; script-src 'self'" in reply.headers["content-security-policy"]
            )
            assert "<script>" not in reply.text
            assert " style=" not in reply.text
            assert "onclick" not in reply.text
            assert "//cdn" not in reply.text
            assert SECRET not in reply.text
            if role == "viewer":
                assert BODY not in reply.text, address
            for action, _ in forms_of(reply.text):
                name = action.removeprefix("/do/")
                assert ACTS[name].right in ROLES[role], (address, name)
    stop()
    assert app.admin.topics() == before
    assert not heard


@pytest.mark.parametrize("server", ["redis_server", "postgres"])
def test_every_page_is_shown_over_a_server_too(server: str, request: pytest.FixtureRequest) -> None:
    running = request.getfixturevalue(server)
    url = running.url if server == "redis_server" else running.new_database()
    with shop(url, namespace="console-pages") as app:
        web = browser(app)
        for address in (each for addresses in ADDRESSES.values() for each in addresses):
            reply = web.get(address)
            assert reply.status_code == 200, (address, text_of(reply.text))
        key = text_of(web.get("/topics/orders/billing/key?key=customer-77").text)
        assert "What blocks it blocked waiting" in key
        assert "NeedRetry: the bank sleeps" in key


@pytest.mark.parametrize("server", ["sqlite", "redis_server", "postgres"])
def test_an_address_with_odd_texts_in_it_is_refused_and_no_failure_of_the_console(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    if server != "sqlite":
        running = request.getfixturevalue(server)
        url = running.url if server == "redis_server" else running.new_database()
    with QFrame(url, namespace="console-odd") as app:
        topic = Topic("orders", kind="ordered", slots=1)
        app.declare(topic)
        app.store.subscribe(topic, "billing")
        web = browser(app, "reader")
        for odd in ("%00", "a%00b", "%ed%a0%80", "%ff", "%e2%80%ae", "x" * 5000, "%27--", "..%2f"):
            for address in (
                f"/topics/{odd}", f"/topics/orders/{odd}", f"/topics/orders/{odd}/dead",
                f"/topics/orders/billing/key?key={odd}", f"/messages?q={odd}",
                f"/messages?q=tag:{odd}", f"/messages?q=topic:{odd}", f"/messages/{odd}",
                f"/messages/{odd}?topic=orders&key={odd}", f"/timers?topic=orders&key={odd}",
                f"/timers?topic={odd}", f"/?named={odd}", f"/audit?verify={odd}", f"/jobs/{odd}",
                f"/body?topic=orders&id={odd}", f"/topics/orders/billing/dead?cause={odd}",
            ):  # fmt: skip
                reply = web.get(address)
                assert reply.status_code in (200, 400, 404), (address, text_of(reply.text))


def test_a_parameter_that_no_page_reads_is_refused_with_those_that_it_reads(app: QFrame) -> None:
    """A page with a misspelt filter showed everything, as if nothing were filtered."""
    web = browser(app, "reader")
    for address, said in (
        ("/timers?topics=orders", "there are: topic, key, since, until, state, tag"),
        ("/topics/orders/billing/dead?sinse=", "there are: since, cause, all, after"),
        ("/workers?topic=orders", "there are: none"),
        ("/body?ids=1", "there are: id, topic, key"),
    ):
        reply = web.get(address)
        assert (reply.status_code, said in text_of(reply.text)) == (400, True), text_of(reply.text)


def test_no_route_shows_a_viewer_a_body_or_what_is_in_it(app: QFrame) -> None:
    web = browser(app, "viewer")
    for address in (
        "/body?topic=orders&id=dead-1", "/messages?q=body.fails:now", "/messages?q=error:declined",
        f"/messages?q=header.trace:{BODY}",
    ):  # fmt: skip
        reply = web.get(address)
        assert reply.status_code == 403
        assert "no right to body" in text_of(reply.text)
    for field in ("fails", "text"):
        assert web.get(f"/messages?q=body.{field}:x").status_code == 403


def test_a_body_is_shown_as_text_with_all_digits_and_without_what_is_named_like_a_secret(
    app: QFrame,
) -> None:
    page = browser(app, "reader").get("/messages/blocked").text
    assert str(2**60 + 3) in page
    assert "&#34;password&#34;: &#34;***&#34;" in page
    file = browser(app, "reader").get("/body?topic=orders&id=blocked")
    assert str(2**60 + 3) in file.text
    assert SECRET not in file.text
    assert file.headers["content-disposition"] == 'attachment; filename="body.txt"'


ASKED = {"card": {"cvv": "123"}, "url": "redis://u:123@db/0", "n": 7, "cvv": 123}


@pytest.mark.parametrize(
    ("words", "is_found"),
    [
        ("body.cvv:123", False),
        ("body.card.cvv:123", False),
        ("id:shown body.card.cvv:123", False),
        ("body.url:redis://u:123@db/0", False),
        ("header.authorization:123", False),
        ("header.link:redis://u:123@db/0", False),
        ("body.url:redis://***@db/0", True),
        ("header.link:redis://***@db/0", True),
        ("header.authorization:", True),
        ("body.n:7", True),
    ],
)
def test_what_is_hidden_is_not_found_by_its_value_and_what_is_shown_is(
    tmp_path: Path, words: str, is_found: bool
) -> None:
    topic = Topic("cards", kind="ordered", slots=1)
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.declare(topic)
        app.store.subscribe(topic, "g")
        headers = {"authorization": "123", "link": "redis://u:123@db/0"}
        app.publish(topic, ASKED, key="k", id="shown", headers=headers)
        shown = browser(app, "reader").get("/messages", params={"q": words})
        assert ("/messages/shown?" in shown.text) is is_found
        if shown.status_code != 200:
            assert "its value is hidden here; search by what is shown" in text_of(shown.text)
        for card, found in (('{"cvv":"123"}', []), ('{"cvv":"***"}', ["shown"])):
            hits = app.admin.search(topic, body={"card": card}, redact=named_like_a_secret)
            assert [each.id for each in hits.records] == found


def test_a_program_says_by_its_name_what_is_hidden(app: QFrame) -> None:
    web = browser(app, "reader", redact=lambda name: name in ("text", "trace"))
    for address in ("/messages/blocked", "/body?topic=orders&id=blocked"):
        assert BODY not in web.get(address).text
        assert SECRET in web.get(address).text


def test_a_message_tells_how_each_attempt_has_ended_where_its_topic_keeps_that(
    app: QFrame,
) -> None:
    web = browser(app, "reader")
    dead, settled = (text_of(web.get(f"/messages/{id_}").text) for id_ in ("dead-1", "good-1"))
    assert "failed for good after" in dead
    assert f"Reject: card {BODY} declined" in dead.partition("failed for good")[2]
    assert re.search(r"attempt 1 by \S+ settled it after", settled)
    assert "keeps no history" not in dead + settled
    viewer = text_of(browser(app, "viewer").get("/messages/dead-1").text)
    assert "failed for good after" in viewer
    unkept = text_of(web.get("/messages/bad-event").text)
    assert 'Topic("events", …, history="7d")' in html.unescape(unkept)


def test_timers_stand_by_the_hour_in_a_strip_and_one_by_one(app: QFrame) -> None:
    page = browser(app, "reader").get("/timers?topic=later").text
    strip = re.findall(r"<b>(\d+)</b><span>\d\d \w+ \d\d:00</span>", page)
    assert strip == ["1", "1", "1"]
    assert page.count('<tr id="timer-') == 3


@pytest.mark.parametrize(
    ("address", "status", "text"),
    [
        ("/topics/none", 404, "There are: events, later, orders"),
        ("/topics/orders/none", 404, "none"),
        ("/topics/orders/billing/dead?after=x", 400, "place"),
        ("/messages?q=a+b", 400, "two words"),
        ("/timers?topic=later&state=gone", 400, "no such state"),
        ("/timers?topic=later&since=soon", 400, "2026-05-17T08:30"),
        ("/jobs/1", 400, "knows none"),
        ("/nothing", 404, "no such page"),
    ],
)
def test_what_is_not_there_is_a_page_that_says_what_to_do(
    app: QFrame, address: str, status: int, text: str
) -> None:
    reply = browser(app).get(address)
    assert reply.status_code == status
    assert text in text_of(reply.text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/", "This store has no topics yet"), ("/messages", "Type an id or a key"),
        ("/timers", "No topic is there"), ("/schedules?prefix=no", "None of the 0 schedules"),
        ("/workers", "No worker is alive"), ("/outbox", "This console was given no outbox"),
        ("/audit", "Nothing is paused"), ("/messages/never-seen", "never-seen"),
        ("/messages?q=state:none", "That cannot be done"),
    ],
)  # fmt: skip
def test_over_a_store_that_has_nothing_each_page_says_what_to_do(
    tmp_path: Path, path: str, text: str
) -> None:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        web = browser(app, environment="production", outboxes=[])
        page = web.get(path)
        assert text in text_of(page.text)
        assert 'is-production">production</span>' in page.text


def test_twenty_tabs_cost_the_store_no_more_than_one(
    app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    store = app.store

    def counted(verb: str, *given: Any, real: Any, **more: Any) -> Any:
        asked.append(verb)
        return real(*given, **more)

    for verb in dir(store):
        real = getattr(store, verb)
        if not verb.startswith("_") and callable(real):
            monkeypatch.setattr(store, verb, partial(counted, verb, real=real))
    costs = []
    monkeypatch.setattr("qframe.web.desk.SYSTEM_CLOCK", VirtualClock())  # it stands still
    addresses = ("/", "/topics/orders/billing", "/messages/dead-1", "/workers", "/timers", "/audit")
    for tabs in (1, 20):
        web = browser(app)
        asked.clear()
        with ThreadPoolExecutor(tabs) as threads:
            replies = list(threads.map(web.get, addresses * tabs))
        assert {reply.status_code for reply in replies} == {200}
        costs.append(sorted(asked))
    assert costs[1] == costs[0] != []


def test_hostile_bodies_names_and_keys_do_no_harm_to_the_page(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>\x00\u202etxt.exe\U0001f600"
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        topic = Topic("evil", kind="ordered", slots=1)
        app.declare(topic)
        app.store.subscribe(topic, "g")
        key = "k/../<b>&\"'\u202e?#%"
        app.publish(topic, {"a": evil, "a<b": 1}, key=key, headers={"<h>": evil}, id="json")
        app.publish(topic, b"\xff\xfe<script>", key=key, id="bytes")
        app.publish(topic, b"<script>alert(1)</script>", key=key, id="raw")
        app.publish(topic, "x" * 250_000, key=key, id="long")
        app.publish(topic, {"a": [[[[[[[0] * 100]]]]]]}, key=key, id="deep", tags=["<i>"])
        web = browser(app, "reader")
        pages = [web.get(f"/messages/{id_}") for id_ in ("json", "bytes", "raw", "long", "deep")]
        pages.append(web.get("/topics/evil/g/key", params={"key": key}))
        pages.append(web.get("/messages?q=topic:evil"))
        for page in pages:
            assert page.status_code == 200
            for bad in ("<img", "<script>", "\x00", "\u202e", "<b>&amp;", "<h>", "<i>"):
                assert bad not in page.text
        assert "is longer" in text_of(pages[3].text)
        assert len(pages[3].text) < 100_000
        assert len(web.get("/body?topic=evil&id=long").text) == 250_002
        assert "fffe" in web.get("/messages/bytes").text.replace(" ", "")


def test_hostile_errors_reasons_and_names_do_no_harm_on_any_page(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>\u202e"
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        topic, later = Topic("evil", kind="ordered", slots=1), Topic("later", kind="delay")
        for each in (topic, later):
            app.declare(each)
            app.store.subscribe(each, "g")
        app.store.take(topic, "g", {0: EPOCH})
        for name in ("dead", "waits"):
            app.publish(topic, 1, key=evil + name, id=name)
        app.publish(later, evil, key=evil, delay="1h", tags=[evil])
        got = app.store.pull(
            topic, "g", [PullRequest(0, EPOCH, 9)], PullTerms("r", 60_000, 9)
        ).deliveries
        ends = [
            Settlement(one.slot, one.subject, one.seq, "r", 1, EPOCH, verdict, 60_000,
                       error=f"{evil}: {evil}", traceback=f"Traceback\n{evil}")
            for one, verdict in zip(got, (Verdict.DEAD, Verdict.RETRY), strict=True)
        ]  # fmt: skip
        app.store.settle(topic, "g", ends)
        admin = app.admin.acting(by=evil, source=evil)
        admin.pause(topic, "g", why=evil)
        admin.pause(topic, "g", key=evil + "waits", why=evil)
        web = browser(app, "owner")
        for address in (
            "/", "/topics/evil", "/topics/evil/g", "/topics/evil/g/dead", "/messages/dead",
            "/messages/waits", "/messages?q=topic:evil", f"/topics/evil/g/key?key={evil}waits",
            "/timers?topic=later", "/timers?topic=evil", "/audit", "/workers",
        ):  # fmt: skip
            page = web.get(address)
            assert page.status_code == 200, address
            assert "<img" not in page.text, address
            # What a form sends back is as it was.
            assert "\u202e" not in re.sub(r'value="[^"]*"', "", page.text), address
        assert "onerror=alert" in web.get("/topics/evil/g/dead").text


def test_schedules_say_that_nobody_leads_and_when_one_ticks_next(tmp_path: Path) -> None:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        topic = app.declare(Topic("reports", kind="ordered", slots=1))
        app.schedules.put(
            "nightly", "30 2 * * *", tz="Europe/Berlin", topic=topic, body=BODY, overlap="skip"
        )
        app.schedules.pause("nightly", by="ann")
        web = browser(app, "viewer")
        assert "no worker leads" not in web.get("/").text
        assert "It is paused" in web.get("/schedules?schedule=nightly").text
        app.schedules.resume("nightly", by="ann")
        web = browser(app, "viewer")
        assert "schedules</a> <span>no worker leads, so nothing ticks" in web.get("/").text
        page = text_of(web.get("/schedules?schedule=nightly").text)
        for text in (
            "No worker leads", "At 02:30 every day (Europe/Berlin)", "overlap: skip", "by ann",
            "so 02:30 is left out; it ticks then at 03:00", "so 02:30 comes twice",
        ):  # fmt: skip
            assert text in page
        assert len(re.findall(r"\d\d:30:00 \+0[12]:00", page)) == 10
        assert BODY not in page
        missing = web.get("/schedules?schedule=none")
        assert (missing.status_code, "there is none of this name" in missing.text) == (400, True)
        app.store.heartbeat(SCHEDULES, LEADER, "worker", 60_000)
        app.store.claim(SCHEDULES, LEADER, "worker", {0: "0" * 15 + "1"})
        assert "no worker leads" not in browser(app).get("/").text


def test_many_schedules_are_shown_page_by_page_and_found_by_the_beginning_of_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "SHOWN", 5)
    monkeypatch.setattr(schedules, "LOOK", 8)
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        topic = app.declare(Topic("reports", kind="ordered", slots=1))
        for number in range(12):
            app.schedules.put(f"job-{number:02}", f"{number} 3 1 1 *", topic=topic)
        web = browser(app)

        def all_shown(address: str) -> tuple[list[str], list[int], str]:
            """The names on a page and those that follow, how many on each, and all texts."""
            names: list[str] = []
            sizes, text = [], ""
            while address:
                page = web.get(address).text
                found = re.findall(r'id="schedule-([^"]+)"', page)
                names, text = names + found, text + text_of(page)
                sizes.append(len(found))
                following = re.search(r'href="([^"]+)">the next ones', page)
                address = html.unescape(following[1]) if following else ""
            return sorted(names), sizes, text

        jobs = [f"job-{number:02}" for number in range(12)]
        assert all_shown("/schedules")[:2] == (jobs, [5, 5, 2])
        assert all_shown("/schedules?prefix=job-11")[0] == jobs[11:]
        names, _, text = all_shown("/schedules?prefix=job-0")
        assert names == jobs[:10]
        assert "Looked at 5 schedules one by one. There are more" in text
        assert all_shown("/schedules?prefix=job-1")[0] == jobs[10:]
        names, _, text = all_shown("/schedules?prefix=none")
        assert names == []
        assert "None of the 8 schedules that were looked at has a name that begins with" in text
        assert "None of the 4 schedules" in text
        kept = web.get("/schedules?prefix=job-0&schedule=job-11").text
        assert 'value="job-0"' in kept
        assert "schedule=job-03&amp;prefix=job-0" in kept
        assert web.get("/schedules?prefix=no+name").status_code == 400


def test_a_search_for_a_key_links_to_the_streams_that_it_has_left_out(app: QFrame) -> None:
    web = browser(app)
    page = web.get("/messages?q=key:customer-77").text
    assert "Not looked at, since streams find a key only message by message: events" in text_of(
        page
    )
    assert "/messages?q=topic%3Aevents+key%3Acustomer-77" in page
    assert "That is all" not in page
    assert "Not looked at" not in web.get("/messages?q=topic:orders+key:customer-77").text


def test_a_page_whose_look_is_dear_is_not_looked_at_again_by_itself(app: QFrame) -> None:
    web = browser(app)
    for address, is_live in (
        ("/", True), ("/audit", True), ("/audit?verify=orders", False),
        ("/messages/dead-0?topic=orders", True), ("/messages/absent", False),
        ("/topics/events/stats/key?key=x", False), ("/messages?q=topic:orders", False),
        ("/schedules", True), ("/schedules?prefix=n", False),
    ):  # fmt: skip
        assert ('hx-trigger="look"' in web.get(address).text) is is_live, address


def test_a_timer_beyond_all_calendars_hides_no_other_one(tmp_path: Path) -> None:
    """Nothing of the kind is published any more, but a store may still have one."""
    topic = Topic("later", kind="delay", slots=1)
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}") as app:
        app.declare(topic)
        app.store.subscribe(topic, "billing")
        app.publish(topic, 1, key="near", delay="1h")
        far = entry(topic, 1, "far", "1")
        far.at_ms = 253_402_304_399_000
        app.store.publish(topic, [far])
        for address in ("/timers", "/timers?topic=later&key=far", f"/messages/{far.id}"):
            reply = browser(app).get(address)
            assert reply.status_code == 200
            assert "253402304399000 ms since 1970" in text_of(reply.text)
        assert "near" in text_of(browser(app).get("/timers").text)


def test_a_flood_is_not_shown_in_part_as_if_that_were_all(tmp_path: Path) -> None:
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal") as app:
        app.declare(ORDERS)
        app.store.subscribe(ORDERS, "billing")
        app.publish_many(ORDERS, [Outgoing(number, key="whale") for number in range(150)])
        web = browser(app)
        for words in ("whale", "key:whale", "topic:orders group:billing state:todo"):
            said = text_of(web.get("/messages", params={"q": words}).text)
            assert "These are the first 50; there are more." in said, words
            assert "That is all" not in said
        said = text_of(web.get("/topics/orders/billing/key", params={"key": "whale"}).text)
        assert "and 51 or more" in said


def test_what_a_page_has_not_looked_at_is_said_and_leads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qframe.web.pages.messages.LOOK", 5)
    monkeypatch.setattr("qframe.web.pages.message._LOOK", 5)
    monkeypatch.setattr("qframe.web.pages.key._LOOK", 5)
    monkeypatch.setattr("qframe.web.pages.timers.LOOK", 5)
    later = Topic("later", "delay", slots=1)
    events = Topic("events", slots=1)
    with QFrame(f"sqlite:///{tmp_path / 'q.db'}?synchronous=normal") as app:
        for topic in (ORDERS, events, later):
            app.declare(topic)
            app.store.subscribe(topic, "billing")
        app.publish_many(ORDERS, [Outgoing(number, key=f"k{number}") for number in range(30)])
        app.publish_many(events, [Outgoing(number, key=f"k{number}") for number in range(30)])
        for number in range(30):
            app.timers.schedule(
                later, number, key=f"t{number}", id=f"t-{number}", delay=60 + number,
                tags=["rare"] if number == 29 else [],
            )  # fmt: skip
        web = browser(app)

        def followed(address: str, found: str) -> None:
            """Goes on from page to page until something is found, or there is no further page."""
            for _ in range(60):
                page = web.get(address).text
                if found in text_of(page):
                    return
                links = re.findall(r'href="([^"]*)">go on', page)
                assert links, text_of(page)
                address = html.unescape(links[0])
            raise AssertionError(address)

        said = text_of(web.get("/messages?q=never").text)
        assert "Nothing that was looked at fits" in said
        assert "not all was looked at" in said
        assert said.count("go on from there") == 2  # as an id, and as a key
        followed("/messages?q=topic:later+id:t-29", "t29")
        assert "go on from there" in text_of(web.get("/messages/never").text)
        key = text_of(web.get("/topics/events/billing/key?key=k29").text)
        assert "Nothing of this key waits here" not in key
        assert "go on from there" in key
        assert "None of the 5 timers that were looked at is like that" in text_of(
            web.get("/timers?topic=later&tag=rare").text
        )
        followed("/timers?topic=later&tag=rare", "t29")
        whole = text_of(web.get("/messages?q=topic:orders+key:never").text)
        assert "Nothing fits" in whole
