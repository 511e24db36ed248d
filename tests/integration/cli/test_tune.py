"""`qframe groups tune`, `pause`, `resume`: what they set, what they show, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_program import ORDERS, SHOP, Program

from qframe.options.tuning import Tuning


@pytest.fixture
def shop(tmp_path: Path) -> Program:
    """A shop with three orders to handle, and a group for them."""
    program = Program(tmp_path)
    program.write("shop.py", SHOP)
    with program.app() as app:
        app.declare(ORDERS)
        app.store.subscribe(ORDERS, "billing")
        for number in range(3):
            app.publish(ORDERS, {"n": number}, key=f"k{number}")
    return program


def tuned(program: Program) -> Tuning:
    with program.app() as app:
        return app.admin.tuned("orders", "billing")


def test_what_is_set_is_shown_and_is_what_the_code_says_after_a_reset(shop: Program) -> None:
    words = ("groups", "tune", "orders", "billing")
    assert shop.ok(*words).out == "orders/billing: as in its code\n"
    set_now = shop.ok(*words, "--threads", "16", "--rate", "100/s", "--in-flight", "500")
    said = "orders/billing: threads 16, rate 100/s, in flight 500"
    assert set_now.out == f"{said}; workers apply this within 2 s\n"
    assert shop.ok(*words).out == f"{said}\n"
    assert tuned(shop) == Tuning(threads=16, rate="100/s", in_flight=500)
    assert shop.ok(*words, "--threads", "reset", "--json").json == {
        "topic": "orders", "group": "billing", "rate": "100/s", "in_flight": 500, "hold": None,
        "keys": {}, "stacks_until_ms": None, "taken_ms": None, "reader": None, "threads": None,
        "paused": False,
    }  # fmt: skip
    shop.ok(*words, "--reset", "--in-flight", "9")
    assert tuned(shop) == Tuning(in_flight=9)
    assert shop.ok("groups", "pause", "orders", "billing", "--json").json["paused"] is True
    tuning = shop.ok("groups", "list", "orders", "--json").json[0]["tuning"]
    assert (set(tuning["hold"]), tuning["paused"]) == ({"by", "since_ms"}, True)


@pytest.mark.gate
def test_a_paused_group_is_seen_as_such_and_handles_nothing_until_it_is_resumed(
    shop: Program,
) -> None:
    assert "paused; workers" in shop.ok("groups", "pause", "orders", "billing").out
    assert "billing (paused)" in shop.ok("topics", "list").out
    assert shop.ok("groups", "list", "orders").out.splitlines()[1].split()[-1] == "paused"
    with shop.app() as app:
        app.store.heartbeat(ORDERS, "billing", "host-1-x", 60_000)
        assert shop.ok("workers", "list").out.rstrip().endswith("orders/billing (paused)")
        assert shop.ok("workers", "list", "--json").json[0]["paused"] == ["orders/billing"]
        assert shop.ok("slots", "list", "orders").out.splitlines()[1].startswith("billing (paused)")
        assert {each["paused"] for each in shop.ok("slots", "list", "orders", "--json").json} == {
            True
        }
        app.store.leave(ORDERS, "billing", "host-1-x")
    shop.ok("worker", "shop", "--burst")
    assert not (shop.directory / "handled.txt").exists()
    assert (
        shop.ok("groups", "resume", "orders", "billing").out
        == "orders/billing: resumed; workers apply this within 2 s\n"
    )
    assert "paused" not in shop.ok("topics", "list").out + shop.ok("groups", "list", "orders").out
    shop.ok("worker", "shop", "--drain")
    handled = (shop.directory / "handled.txt").read_text(encoding="utf-8").splitlines()
    assert sorted(handled) == ["k0 0", "k1 1", "k2 2"]
