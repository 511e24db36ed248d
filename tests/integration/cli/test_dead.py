"""`qframe dead`: dead letters are listed, shown, retried and dropped, and nothing by mistake."""

from __future__ import annotations

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


def test_dead_letters_are_listed_page_by_page_with_their_errors(shop: Program) -> None:
    words = ("dead", "list", "orders", "billing")
    assert "no such customer" in shop.ok(*words).out
    header, *rows, more = shop.ok(*words, "--limit", "2").out.splitlines()
    assert header.split() == ["id", "key", "attempts", "died", "error"]
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


@pytest.mark.gate
def test_one_those_that_were_seen_or_all_are_retried(shop: Program) -> None:
    words = ("dead", "retry", "orders", "billing")
    assert shop.ok(*words, "o-0").out == "1 message of orders/billing due again\n"
    assert dead(shop) == ["o-1", "o-2"]
    assert shop.ok("groups", "list", "orders", "--json").json[0]["todo"] == 1
    seen = shop.ok("dead", "list", "orders", "billing", "--json").json[0]["dead_place"]
    assert "1 message" in shop.ok(*words, "--until", seen).out
    assert len(dead(shop)) == 1
    assert "1 message" in shop.ok(*words, "--all").out
    assert dead(shop) == []


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
    assert shop.ok("store", "verify").out == "orders: ok\nqframe.audit: ok\n"


def test_retrying_takes_the_yes_of_dropping_and_does_not_ask(shop: Program) -> None:
    words = ("dead", "retry", "orders", "billing")
    assert "1 message" in shop.ok(*words, "o-0", "--yes").out
    assert "2 messages" in shop.ok(*words, "--all", "--yes").out


@pytest.mark.parametrize("verb", ["retry", "drop"])
def test_an_id_that_is_not_dead_is_refused_and_nothing_done(shop: Program, verb: str) -> None:
    said = shop.refused("dead", verb, "orders", "billing", "o-0", "o-9")
    assert "'o-9': it is not a dead letter of orders/billing" in said
    assert dead(shop) == ["o-0", "o-1", "o-2"]


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
