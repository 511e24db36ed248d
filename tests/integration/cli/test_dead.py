"""`qframe dead`: dead letters are listed, shown, retried and dropped, and nothing by mistake."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli_program import ORDERS, SHOP, Program

from qframe import Outgoing
from qframe.cli.dead import PAGE


@pytest.fixture
def shop(tmp_path: Path) -> Program:
    """A shop with three dead letters: o-0 and o-1 failed, o-2 was rejected."""
    program = Program(tmp_path)
    program.write("shop.py", SHOP)
    with program.app() as app:
        for number, what in enumerate(("bad", "bad", "never")):
            app.publish(ORDERS, {"n": number, what: True}, key=f"k{number}", id=f"o-{number}")
    program.ok("worker", "shop", "--burst")
    return program


def dead(program: Program) -> list[str]:
    with program.app() as app:
        return sorted(each.id for each in app.admin.dead("orders", "billing"))


def test_dead_letters_are_listed_with_their_errors(shop: Program) -> None:
    header, *rows = shop.ok("dead", "list", "orders", "billing").out.splitlines()
    assert header.split() == ["id", "key", "attempts", "died", "error"]
    assert len(rows) == 3
    assert any("no such customer" in row for row in rows)


def test_dead_letters_are_listed_page_by_page(shop: Program) -> None:
    words = ("dead", "list", "orders", "billing")
    header, *rows, more = shop.ok(*words, "--limit", "2").out.splitlines()
    assert header.startswith("id")
    assert len(rows) == 2
    told, place = more.rsplit(" ", 1)
    assert told == "those behind them: --after"
    (last,) = shop.ok(*words, "--after", place, "--json").json
    assert sorted([last["id"], *(row.split()[0] for row in rows)]) == ["o-0", "o-1", "o-2"]
    rest = shop.ok(*words, "--after", last["dead_place"])
    assert rest.out == "no more dead letters in orders/billing\n"
    assert "after 'o-1': it is neither a dead letter" in shop.refused(*words, "--after", "o-1")


@pytest.mark.promise(6)
def test_one_is_shown_with_its_traceback(shop: Program) -> None:
    out = shop.ok("dead", "show", "orders", "billing", "o-0").out
    assert out.startswith("dead in orders, group billing: it is dead after 1 attempt")
    assert "raise ValueError" in out
    record = shop.ok("dead", "show", "orders", "billing", "o-0", "--json").json
    assert (record["id"], record["body"]) == ("o-0", {"n": 0, "bad": True})
    assert "ValueError" in record["error"]


def test_one_is_retried(shop: Program) -> None:
    ran = shop.ok("dead", "retry", "orders", "billing", "o-0")
    assert ran.out == "1 message of orders/billing due again\n"
    assert dead(shop) == ["o-1", "o-2"]
    assert shop.ok("groups", "orders", "--json").json[0]["todo"] == 1


def test_all_are_retried(shop: Program) -> None:
    ran = shop.ok("dead", "retry", "orders", "billing", "--all")
    assert ran.out == "3 messages of orders/billing due again\n"
    assert dead(shop) == []


def test_those_that_were_seen_are_retried(shop: Program) -> None:
    seen = shop.ok("dead", "list", "orders", "billing", "--json").json[1]["dead_place"]
    assert "2 messages" in shop.ok("dead", "retry", "orders", "billing", "--until", seen).out
    assert len(dead(shop)) == 1


def test_dropping_asks_first(shop: Program) -> None:
    ran = shop.run("dead", "drop", "orders", "billing", "o-0", "o-1", stdin="n\n")
    assert ran.code == 1
    assert "Drop 2 dead letters of orders/billing for good?" in ran.err
    assert shop.run("dead", "drop", "orders", "billing", "--all", stdin="").code == 1
    assert dead(shop) == ["o-0", "o-1", "o-2"]
    assert shop.ok("dead", "drop", "orders", "billing", "o-0", stdin="y\n").out == (
        "1 message of orders/billing dropped\n"
    )
    assert shop.ok("dead", "drop", "orders", "billing", "--all", "--yes").out == (
        "2 messages of orders/billing dropped\n"
    )
    assert shop.ok("dead", "list", "orders", "billing").out == "no dead letters in orders/billing\n"
    assert shop.ok("verify").out == "orders: ok\nqframe.audit: ok\n"


@pytest.mark.parametrize("verb", ["retry", "drop"])
def test_an_id_that_is_not_dead_is_refused_and_nothing_done(shop: Program, verb: str) -> None:
    said = shop.refused("dead", verb, "orders", "billing", "o-0", "o-9")
    assert "'o-9': it is not a dead letter of orders/billing" in said
    assert dead(shop) == ["o-0", "o-1", "o-2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            [],
            "it was given no message id; give ids from `qframe dead list orders billing`, or --all",
        ),
        (["o-0", "--all"], "it was given both ids and --all; give one of them"),
        (["o-0", "--until", "1-1-1"], "it was given both ids and --all; give one of them"),
    ],
)
def test_either_ids_or_all(shop: Program, words: list[str], said: str) -> None:
    refused = shop.refused("dead", "retry", "orders", "billing", *words, code=2)
    assert f"command 'dead retry': {said}" in refused
    assert dead(shop) == ["o-0", "o-1", "o-2"]


@pytest.mark.promise(10)
def test_verify_ends_with_1_when_messages_are_missing(shop: Program) -> None:
    with closing(sqlite3.connect(shop.directory / "qframe.db")) as database:
        database.execute("DELETE FROM qframe_dead")
        database.commit()
    ran = shop.run("verify", "orders")
    assert ran.code == 1
    assert ran.out.startswith("orders: ")
    assert " wrong\n  topic orders: " in ran.out
    assert shop.run("verify", "--json").json[0]["faults"]


def test_a_long_list_is_whole_and_in_order(shop: Program) -> None:
    with shop.app() as app:
        messages = [Outgoing({"n": n, "never": True}, key=f"k{n}") for n in range(PAGE + 5)]
        app.publish_many(ORDERS, messages)
    shop.ok("worker", "shop", "--burst")
    words = ("dead", "list", "orders", "billing", "--limit", "10000")
    places = [each["dead_place"] for each in shop.ok(*words, "--json").json]
    assert len(set(places)) == len(places) == PAGE + 8
    assert shop.ok(*words, "--json", "--after", places[PAGE]).json[0]["dead_place"] == places[-7]
    assert len(shop.ok(*words).out.splitlines()) == PAGE + 9
    limited = shop.ok("dead", "list", "orders", "billing", "--limit", str(PAGE + 2))
    assert limited.out.splitlines()[-1] == f"those behind them: --after {places[PAGE + 1]}"
