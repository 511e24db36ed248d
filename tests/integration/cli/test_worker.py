"""`qframe worker`: which modules it serves, how it refuses others, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from cli_program import ORDERS, SHOP, Program
from processes import WITHIN_S, title_of

from qframe import Outgoing, Topic

TWO = """
from qframe import QFrame, Topic

first = QFrame(store="sqlite:///first.db")
second = QFrame(store="sqlite:///second.db")
topic = Topic("t", slots=1)


def handle(body: int) -> None:
    if body < 0:
        raise ValueError


first.consumer(topic, group="g")(handle)
second.consumer(topic, group="g")(handle)
"""


LOGGED = """
import logging
from qframe import Message, consumer


@consumer("orders", group="logged")
def log(message: Message) -> None:
    logging.getLogger(__name__).info("packing")
"""


def lag(program: Program, store: str) -> int:
    (group,) = program.ok("groups", "list", "t", "--json", "--store", f"sqlite:///{store}.db").json
    return int(group["lag"])


@pytest.mark.gate
def test_it_handles_what_is_there_and_ends(program: Program) -> None:
    program.write("shop.py", SHOP)
    with program.app() as app:
        app.publish_many(ORDERS, [Outgoing({"n": number}, key="k") for number in range(5)])
    ran = program.ok("worker", "shop", "--burst")
    assert ran.out == ""
    assert (program.directory / "handled.txt").read_text().split() == [
        word for number in range(5) for word in ("k", str(number))
    ]
    events = [json.loads(line)["event"] for line in ran.err.splitlines()]
    assert events[0] == "worker.started"
    assert events[-1] == "worker.stopped"


def test_a_worker_for_which_nothing_names_a_store_warns_of_the_one_that_it_serves(
    program: Program,
) -> None:
    program.write("shop.py", SHOP)
    with program.app() as app:
        app.declare(ORDERS)

    def warnings(*words: str, **variables: str) -> list[dict[str, object]]:
        ran = program.ok("worker", "shop", "--burst", *words, **variables)
        told = [json.loads(line) for line in ran.err.splitlines()]
        return [each for each in told if each["event"] == "store.default"]

    [warning] = warnings()
    assert (warning["level"], warning["store"]) == ("warning", "sqlite:///qframe.db")
    assert warning["folder"] == str(program.directory)
    assert "QFRAME_STORE" in str(warning["why"])
    assert warnings("--store", "sqlite:///qframe.db") == []
    assert warnings(QFRAME_STORE="sqlite:///qframe.db") == []
    program.write("qframe.toml", 'store = "sqlite:///qframe.db"')
    assert warnings() == []


FORGETFUL = """
from sqlalchemy import create_engine
from qframe import Outbox, QFrame, Topic

app = QFrame("sqlite:///q.db")
outbox = Outbox(create_engine("sqlite:///business.db"), prefix="shop_")


@app.consumer(Topic("orders"), group="billing")
def bill() -> None:
    pass
"""


def test_a_worker_warns_of_an_outbox_beside_its_handlers_that_nobody_relays(
    program: Program,
) -> None:
    """What it held was never sent, and nothing said so."""

    def warnings(module: str) -> list[dict[str, object]]:
        ran = program.ok("worker", module, "--burst")
        told = [json.loads(line) for line in ran.err.splitlines()]
        return [each for each in told if each["event"] == "outbox.unrelayed"]

    program.write("shop.py", FORGETFUL)
    program.write("relays.py", "from shop import app, outbox\napp.relay(outbox)\n")
    [warning] = warnings("shop")
    assert (warning["level"], warning["outbox"]) == ("warning", "shop:outbox")
    assert "app.relay" in str(warning["why"])
    assert warnings("relays") == []
    assert warnings("shop") == []  # a worker elsewhere relays it


def test_no_body_and_no_text_of_a_handlers_error_is_logged(program: Program) -> None:
    program.write("shop.py", SHOP)
    with program.app() as app:
        app.publish(ORDERS, {"bad": "hunter2"}, key="k")
    for log_format in ("json", "console"):
        ran = program.ok(
            "worker", "shop", "--burst", QFRAME_LOG_FORMAT=log_format, QFRAME_LOG_LEVEL="debug"
        )
        assert "worker.started" in ran.err
        assert "hunter2" not in ran.err
    assert "hunter2" in program.ok("dead", "list", "orders", "billing").out


def test_lines_of_the_modules_own_loggers_are_shown_with_their_message(program: Program) -> None:
    program.write("shop.py", LOGGED)
    with program.app() as app:
        app.publish(ORDERS, {"n": 1}, key="k", id="m-1")
    ran = program.ok("worker", "shop", "--burst")
    said = [line for line in map(json.loads, ran.err.splitlines()) if "logger" in line]
    assert [(line["event"], line["logger"], line["id"], line["key"]) for line in said] == [
        ("packing", "shop", "m-1", "k")
    ]


def test_its_flags_reach_the_apps_of_its_modules(program: Program) -> None:
    program.write("shop.py", SHOP)
    where = ["--store", "sqlite:///other.db", "--namespace", "test"]
    program.ok("topics", "declare", "orders", "--kind", "ordered", "--slots", "4", *where)
    program.ok("publish", "orders", '{"n": 1}', "--key", "k", *where)
    program.ok("worker", "shop", "--burst", *where)
    assert program.ok(*where, "groups", "list", "orders", "--json").json[0]["settled"] == 1
    assert not (program.directory / "qframe.db").exists()


def test_an_app_is_named_and_others_are_left_alone(program: Program) -> None:
    program.write("two.py", TWO)
    program.ok("publish", "t", "1", "--slots", "1", "--store", "sqlite:///first.db")
    program.ok("worker", "two:first", "--burst")
    assert lag(program, "first") == 0
    assert not (program.directory / "second.db").exists()
    assert "its topic is of type Topic, not a QFrame" in program.refused("worker", "two:topic")
    assert "it has no third; name the variable that holds the QFrame" in program.refused(
        "worker", "two:third"
    )


def test_several_apps_are_served_together(program: Program) -> None:
    program.write("two.py", TWO)
    for store in ("first", "second"):
        program.ok("publish", "t", "1", "--slots", "1", "--store", f"sqlite:///{store}.db")
    program.ok("worker", "two", "--burst")
    assert (lag(program, "first"), lag(program, "second")) == (0, 0)


@pytest.mark.gate
@pytest.mark.promise(9)
@pytest.mark.parametrize(("module", "text"), [("shop", SHOP), ("two", TWO)])
def test_sigterm_ends_it_with_0(program: Program, module: str, text: str) -> None:
    program.write(f"{module}.py", text)
    with subprocess.Popen(
        [sys.executable, "-m", "qframe", "worker", module],
        cwd=program.directory,
        env=program.environment(),
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as worker:
        assert worker.stderr is not None
        try:
            first = worker.stderr.readline()
            assert json.loads(first)["event"] == "worker.started"
            assert title_of(worker.pid) == f"qframe: worker {module}"
            worker.send_signal(signal.SIGTERM)
            rest = worker.stderr.read()
            assert worker.wait(WITHIN_S) == 0
        finally:
            worker.kill()
    assert json.loads(rest.splitlines()[-1])["event"] == "worker.stopped"


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("module", "shown"),
    [
        ("nope", "module 'nope': it is neither in"),
        ("nope.deeper", "module 'nope.deeper': it is neither in"),
        ("shop.py", "it is not the name of a module; name the module: shop"),
        ("./src/shop.py", "name the module: src.shop"),
        ("no such", "it is not the name of a module; name it as in an import"),
        (":app", "it is not the name of a module"),
        (".shop", "it is not the name of a module"),
        ("json", "module 'json': it registers no consumer; decorate a function"),
    ],
)
def test_what_is_no_module_with_consumers_is_refused(
    program: Program, module: str, shown: str
) -> None:
    assert shown in program.refused("worker", module)


@pytest.mark.parametrize(
    ("text", "place", "error"),
    [
        ("def f():\n    return 1 / 0\n\n\nf()\n", "broken.py line 5: ", "ZeroDivisionError"),
        ("import not_there_at_all\n", "broken.py line 1", "No module named 'not_there_at_all'"),
        ("x = 1\ndef f(:\n", "broken.py line 2: SyntaxError", "SyntaxError"),
    ],
)
def test_an_error_inside_a_module_is_shown_with_its_own_traceback(
    program: Program, text: str, place: str, error: str
) -> None:
    program.write("broken.py", text)
    ran = program.run("worker", "broken")
    assert (ran.code, ran.out) == (1, "")
    assert "importlib" not in ran.err
    assert "modules.py" not in ran.err
    assert error in ran.err
    said = ran.err.splitlines()[-1]
    assert said.startswith("error: module 'broken': its import failed at ")
    assert place in said


@pytest.mark.parametrize("call", ["first.run()", "asyncio.run(first.arun())"])
@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_module_that_runs_its_app_as_it_is_imported_is_refused(
    program: Program, call: str, processes: tuple[str, ...]
) -> None:
    program.write("shop.py", f"import asyncio\n{TWO}\n{call}\n")
    said = program.refused("worker", "shop", *processes)
    assert "run 'while its module is imported'" in said
    assert 'call it under: if __name__ == "__main__"' in said


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("threads=2", "threads=0", "its import failed at shop.py line 7: threads 0: it must be"),
        ("@consumer(orders,", "@consumer('bills',", "topic 'bills': nobody has declared it in"),
    ],
)
def test_a_consumer_that_cannot_be_is_told_in_one_line(
    program: Program, before: str, after: str, shown: str
) -> None:
    program.write("shop.py", SHOP.replace(before, after))
    assert shown in program.refused("worker", "shop", "--burst")


@pytest.mark.promise(8)
@pytest.mark.parametrize("more", [[], ["--processes", "2"]])
def test_a_flag_that_a_module_overrules_is_refused_instead_of_ignored(
    program: Program, more: list[str]
) -> None:
    program.write(
        "shop.py",
        "from qframe import Message, QFrame, Topic\n"
        "app = QFrame(store='sqlite:///shop.db')\n"
        "@app.consumer(Topic('t'), group='g')\n"
        "def handle(message: Message) -> None: ...\n",
    )
    words = ["worker", "shop", "--burst", *more, "--store"]
    said = program.refused(*words, "redis://u:hunter2@127.0.0.1:1/0")
    assert "--store 'redis://***@127.0.0.1:1/0': the module's own QFrame(store=" in said
    assert "sqlite:///shop.db" in said
    program.ok(*words, "sqlite:///shop.db")


def test_a_store_that_comes_up_late_is_waited_for_as_long_as_asked(program: Program) -> None:
    program.write("shop.py", SHOP)
    missing = ["--store", "redis://127.0.0.1:1/0"]
    program.refused("worker", "shop", "--wait", "300ms", *missing)
    assert "it is not a duration" in program.refused("worker", "shop", "--wait", "long")


# Which of a module's consumers it serves.

THREE = """
from qframe import Message, QFrame, Topic

app = QFrame()
orders = Topic("orders", kind="ordered", slots=2)


def handle(message: Message) -> None: ...


app.consumer(orders, "billing")(handle)
app.consumer(orders, "stock")(handle)
app.consumer(Topic("mail", slots=2), "smtp")(handle)
"""
NONE_HANDLED = {"billing": 0, "stock": 0, "": 0}


@pytest.fixture
def three(program: Program) -> Program:
    """A module with three consumers, and a message for each."""
    program.write("three.py", THREE)
    with program.app() as app:
        orders = app.declare(Topic("orders", kind="ordered", slots=2))
        for group in ("billing", "stock"):
            app.store.subscribe(orders, group)
        app.publish(orders, 1, key="a")
        app.publish(Topic("mail", slots=2), 1)
    return program


def handled(program: Program) -> dict[str, int]:
    with program.app() as app:
        return {one.group: one.settled for each in app.admin.topics() for one in each.groups}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"billing": 1, "stock": 1, "smtp": 1}),
        (["--topic", "orders"], {"billing": 1, "stock": 1, "": 0}),
        (["--group", "stock", "--group", "smtp"], {"billing": 0, "stock": 1, "smtp": 1}),
        (["--topic", "orders", "--group", "billing"], {"billing": 1, "stock": 0, "": 0}),
    ],
)
def test_a_worker_serves_the_topics_and_groups_that_are_named(
    three: Program, words: list[str], expected: dict[str, int]
) -> None:
    quiet = three.ok("worker", "three:app", "--burst", "--log-level", "error", *words)
    assert handled(three) == expected
    assert "worker.started" not in quiet.err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--topic", "ordrs"], "did you mean 'orders'"),
        (["--group", "x"], "there are: billing, smtp, stock"),
        (["--topic", "mail", "--group", "stock"], "there are: orders/billing, orders/stock"),
        (["--log-level", "loud"], "log_level 'loud': it must be one of debug, info"),
    ],
)
def test_consumers_that_are_not_there_are_refused(
    three: Program, words: list[str], shown: str
) -> None:
    assert shown in three.refused("worker", "three:app", "--burst", *words)
    assert handled(three) == NONE_HANDLED


def test_a_group_is_dropped_when_its_user_says_yes(three: Program) -> None:
    refused = three.run("groups", "drop", "orders", "billing", stdin="n\n")
    assert refused.code == 1
    assert "Drop orders/billing with 1 unsettled message and 0 dead letters" in refused.err
    assert handled(three) == NONE_HANDLED
    dropped = three.ok("groups", "drop", "orders", "billing", stdin="y\n")
    assert dropped.out == "group billing of topic orders dropped\n"
    assert handled(three) == {"stock": 0, "": 0}
