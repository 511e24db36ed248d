"""`qframe outbox`: what waits and what is refused is seen, tried again and dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apps import running
from business import engine_of
from cli_program import Program
from eventually import eventually
from sqlalchemy import Engine, inspect, text
from sqlalchemy.orm import Session

from qframe import Outbox, Topic

orders = Topic("orders", kind="ordered", slots=4)
LATER_ID, KIND_ID, NONSENSE_ID, FULL_ID = "o-later", "o-kind", "o-nonsense", "o-full"

MODULE = """
from sqlalchemy import create_engine
from qframe import Outbox, QFrame
app = QFrame(store="{store}")
outbox = app.relay(Outbox(create_engine("{business}")))
"""


def put(outbox: Outbox, topic: Topic | str, body: object, **options: Any) -> None:
    with Session(outbox.engine) as session:
        outbox.publish(session, topic, body, **options)
        session.commit()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = engine_of(f"sqlite:///{tmp_path}/business.db")
    yield engine
    engine.dispose()


@pytest.fixture
def program(tmp_path: Path, engine: Engine) -> Program:
    """Three topics, and an outbox of what they refuse, what waits behind it, and what is fine."""
    program = Program(tmp_path)
    outbox = Outbox(engine)
    with program.app() as app:
        app.declare(orders)
        app.declare(Topic("ranked", kind="priority", slots=1))
        app.publish(Topic("small", slots=1, max_length=1), 0)
        app.store.subscribe(Topic("small", slots=1, max_length=1), "g")
    put(outbox, orders, {"n": 1}, key="ann", id="o-fine", headers={"from": "web"})
    put(outbox, "later", 1, id=LATER_ID)
    put(outbox, Topic("ranked", kind="ordered", slots=1), 1, key="dan", id=KIND_ID)
    put(outbox, orders, 1, key="bob", id=NONSENSE_ID)
    put(outbox, "small", 1, key="cat", id=FULL_ID)
    put(outbox, "ranked", 2, key="dan", id="behind-kind")
    put(outbox, orders, 2, key="bob", id="behind-nonsense")
    put(outbox, orders, 2, key="ann", id="o-fine-too")
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE qframe_outbox SET headers='[' WHERE id='{NONSENSE_ID}'"))
    return program


@pytest.fixture
def url(engine: Engine) -> str:
    return str(engine.url)


def left(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT id FROM qframe_outbox ORDER BY number"))
        return [each.id for each in rows]


@pytest.mark.gate
def test_what_is_refused_is_told_with_its_reason_and_what_it_holds_back(
    program: Program, url: str
) -> None:
    waiting = {each["id"]: each for each in program.ok("outbox", "list", url, "--json").json}
    assert list(waiting) == [
        "o-fine", LATER_ID, KIND_ID, NONSENSE_ID, FULL_ID, "behind-kind", "behind-nonsense",
        "o-fine-too",
    ]  # fmt: skip
    for name, reason in (
        (LATER_ID, "topic 'later': nobody has declared it"),
        (KIND_ID, "declared with kind=priority"),
        (NONSENSE_ID, "it cannot be decoded: "),
        (FULL_ID, "slot 0 of topic 'small' is full; its max_length is 1"),
    ):
        assert reason in waiting[name]["refused"]
    assert waiting["behind-kind"]["behind"] == KIND_ID
    assert waiting["behind-nonsense"]["behind"] == NONSENSE_ID
    fine = waiting["o-fine"]
    assert (fine["refused"], fine["behind"], fine["tried_at"]) == (None, None, None)
    assert (fine["body"], fine["headers"]) == ({"n": 1}, {"from": "web"})

    out = program.ok("outbox", "show", url, "o-fine").out
    assert out.startswith("waiting for topic orders: waits for a relay\n")
    assert '{"n": 1}' in out
    assert "it is not waiting in the outbox" in program.refused("outbox", "show", url, "nobody")
    header, *rows = program.ok("outbox", "list", url, "--refused").out.splitlines()
    assert header.split() == ["id", "topic", "key", "stored", "why"]
    assert [row.split()[0] for row in rows] == [LATER_ID, KIND_ID, NONSENSE_ID, FULL_ID]
    assert all("refused: " in row for row in rows)
    assert len(program.ok("outbox", "list", url, "--limit", "2", "--json").json) == 2


def test_what_was_meant_for_another_topic_is_published_there_and_then_dropped(
    program: Program, url: str, engine: Engine
) -> None:
    found = program.ok("outbox", "show", url, KIND_ID, "--json").json
    words = ("publish", "orders", "-", "--key", found["key"], "--id", found["id"])
    for _ in range(2):  # it was broken off once
        program.ok(*words, stdin=json.dumps(found["body"]))
    program.ok("outbox", "drop", url, KIND_ID, "--yes")
    assert KIND_ID not in left(engine)
    assert program.ok("outbox", "show", url, "behind-kind", "--json").json["behind"] is None
    with program.app() as app:
        app.store.subscribe(orders, "g")
        assert [each.id for each in app.admin.peek(orders, "g")] == [KIND_ID]


def test_what_is_dropped_is_asked_for_and_what_it_held_back_goes_on(
    program: Program, url: str, engine: Engine
) -> None:
    asked = program.run("outbox", "drop", url, "--all", stdin="n\n")
    assert (asked.code, asked.out) == (1, "")
    assert asked.err == "Drop 4 messages of the outbox for good? [y/N] nothing was changed\n"
    assert len(left(engine)) == 8
    assert program.ok("outbox", "drop", url, NONSENSE_ID, "--yes").out == "1 message dropped\n"
    assert NONSENSE_ID not in left(engine)
    assert program.ok("outbox", "drop", url, "--all", stdin="y\n").out == "3 messages dropped\n"
    assert left(engine) == ["o-fine", "behind-kind", "behind-nonsense", "o-fine-too"]
    said = program.refused("outbox", "drop", url, "o-fine", "nobody", "--yes")
    assert "message 'nobody': it is not waiting in the outbox" in said
    for words in ([], ["o-fine", "--all"]):
        assert "command 'outbox drop': it" in program.refused("outbox", "drop", url, *words, code=2)
    assert len(left(engine)) == 4


@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_an_outbox_on_a_server_is_looked_at_and_changed_as_well(
    tmp_path: Path, server: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(server).new_database()
    program, engine = Program(tmp_path), engine_of(url)
    outbox = Outbox(engine)
    with program.app() as app:
        app.declare(orders)
    put(outbox, "later", {"n": 1}, key="ann", id=LATER_ID)
    put(outbox, orders, {"n": 1}, key="ann", id="o-fine")
    (later,) = program.ok("outbox", "list", url, "--refused", "--json").json
    assert (later["id"], later["key"], later["body"]) == (LATER_ID, "ann", {"n": 1})
    for asked in (1, 2):
        assert program.ok("outbox", "retry", url).out == "relays try again within 1 s\n"
        with engine.connect() as connection:
            assert outbox.rows.asked_again(connection) == asked
    assert program.ok("outbox", "drop", url, LATER_ID, "--yes").out == "1 message dropped\n"
    assert left(engine) == ["o-fine"]
    engine.dispose()


def test_the_outboxes_of_a_module_are_found_by_its_name(
    program: Program, url: str, engine: Engine
) -> None:
    store = f"sqlite:///{program.directory}/qframe.db"
    program.write("shop.py", MODULE.format(store=store, business=url))
    assert len(program.ok("outbox", "list", "shop", "--json").json) == 8
    assert program.ok("outbox", "drop", "shop", FULL_ID, "--yes").out == "1 message dropped\n"
    program.write("bare.py", "from qframe import QFrame, Topic\napp = QFrame()\n"
                  "@app.consumer(Topic('t'), group='g')\ndef f(body: dict): ...\n")  # fmt: skip
    assert "its apps have no relay" in program.refused("outbox", "list", "bare")
    assert "it is neither in" in program.refused("outbox", "list", "nobody")


def test_a_place_without_an_outbox_is_refused_and_nothing_is_made_there(
    program: Program, engine: Engine
) -> None:
    before = sorted(program.directory.iterdir())
    for url, said in (
        ("sqlite:///typo.db", "does not exist yet"),
        ("sqlite:///qframe.db", "it has no tables qframe_outbox and qframe_lines"),
        ("mongodb://me:hunter2@h/d", "it cannot be opened"),
        ("postgresql+psycopg://me:hunter2@127.0.0.1:1/x", "its database cannot be used"),
    ):
        refused = program.refused("outbox", "list", url)
        assert said in refused
        assert "hunter2" not in refused
    assert sorted(program.directory.iterdir()) == before
    assert "prefix" in program.refused("outbox", "list", str(engine.url), "--prefix", "x y")
    said = program.refused("outbox", "list", str(engine.url), "--prefix", "other_")
    assert "it has no tables other_outbox and other_lines" in said
    assert len(inspect(engine).get_table_names()) == 2


def test_what_waits_is_seen_while_the_store_is_away(program: Program, url: str) -> None:
    away = ("--store", "redis://:hunter2@127.0.0.1:1/0")
    ran = program.ok("outbox", "list", url, "--json", *away)
    assert [each["refused"] for each in ran.json] == [None] * 8
    assert ran.err.startswith("error: cannot show which messages are refused: store redis://")
    assert "hunter2" not in ran.err
    assert "cannot be reached" in program.refused("outbox", "list", url, "--refused", *away)
    assert "cannot be reached" in program.refused("outbox", "drop", url, "--all", "--yes", *away)


def test_relays_try_again_at_once_when_they_are_asked_to(
    program: Program, engine: Engine, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qframe.outbox.blocked_lines.FIRST_S", 3600.0)
    monkeypatch.setattr("qframe.outbox.blocked_lines.LONGEST_S", 3600.0)
    outbox = Outbox(engine)
    blocked: list[str] = []
    refused = [each for each in left(engine) if not each.startswith("o-fine")]
    with program.app() as app:
        app.events.listen(
            lambda name, facts: blocked.append(facts["topic"]) if name == "outbox.blocked" else None
        )
        app.relay(outbox)
        with running(app):
            eventually(lambda: set(blocked) >= {"later", "ranked", "orders", "small"})
            eventually(lambda: left(engine) == refused)
            app.declare(Topic("later"))
            program.ok("outbox", "retry", url)
            eventually(lambda: left(engine) == refused[1:])
            eventually(lambda: blocked.count("ranked") == 2)


@pytest.mark.gate
def test_an_outbox_is_bound_to_another_store_once_that_was_asked(
    program: Program, url: str, engine: Engine
) -> None:
    there = ("--store", "sqlite:///there.db")
    program.ok("topics", "declare", "orders", "--kind", "ordered", "--slots", "4", *there)
    assert "belongs to sqlite:///qframe.db, namespace qframe from now on" in program.ok(
        "outbox", "bind", url
    ).out  # fmt: skip
    assert "already" in program.ok("outbox", "bind", url).out
    assert program.ok("outbox", "list", url).err == ""

    listed = program.ok("outbox", "list", url, "--json", *there)
    assert len(listed.json) == 8
    assert "the outbox qframe_ belongs to another store or namespace since 20" in listed.err
    asked = program.run("outbox", "bind", url, *there, stdin="n\n")
    assert (asked.code, asked.out) == (1, "")
    assert asked.err.startswith("the outbox qframe_ belongs to another store or namespace since 20")
    assert "Bind it to sqlite:///there.db, namespace qframe, with what waits (8 messages)?" in (
        asked.err
    )
    assert "already" in program.ok("outbox", "bind", url).out

    assert "there.db" in program.ok("outbox", "bind", url, *there, "--by", "ann", stdin="y\n").out
    assert "already" in program.ok("outbox", "bind", url, *there).out
    [act] = program.ok("store", "audit", "--json", *there).json
    assert (act["verb"], act["by"]) == ("outbox_bind", "ann")
    said = program.ok("outbox", "bind", url, "--yes", "--namespace", "qframe").out
    assert "belongs to sqlite:///qframe.db, namespace qframe from now on" in said


def test_an_outbox_is_not_bound_to_a_store_that_is_not_there(
    program: Program, url: str, engine: Engine
) -> None:
    away = ("--store", "sqlite:///nowhere.db")
    assert "does not exist yet" in program.refused("outbox", "bind", url, "--yes", *away)
    assert not (program.directory / "nowhere.db").exists()
    with engine.connect() as connection:
        assert Outbox(engine).rows.bound(connection) is None
