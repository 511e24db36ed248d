"""What a stranger gets wrong is answered in one line that says what to do."""

from __future__ import annotations

import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from cli_program import Program

from qframe import Topic

pytestmark = pytest.mark.promise(8)


def test_help_is_there_for_everything(program: Program) -> None:
    out = program.ok("--help").out
    for words in ("worker", "publish", "topics", "slots list", "explain", "store verify", "dead"):
        for word in words.split():
            assert word in out
        assert "--" in program.ok(*words.split(), "--help").out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert program.ok("--version").out.startswith("qframe ")


MISTAKES = {
    "nope": "command 'nope': there is no such command; see qframe --help",
    "delete-topic orders": "command 'delete-topic': there is no such command; "
    "use qframe topics delete",
    "skip orders g k": "command 'skip': there is no such command; use qframe keys skip",
    "pause orders": "command 'pause': there is no such command; "
    "use qframe groups pause or qframe keys pause or qframe schedules pause",
    "topcs list": "command 'topcs': there is no such command; use qframe topics",
    "verfy": "command 'verfy': there is no such command; use qframe store verify",
    "topics lst": "command 'lst': there is no such command; use qframe topics list",
    "dead nope": "command 'nope': there is no such command; see qframe dead --help",
    "groups pause": "Missing argument 'TOPIC'; see qframe groups pause --help",
    "worker": "Missing argument 'MODULE...'; see qframe worker --help",
    "publish orders": "command 'publish': it has no body; "
    "give BODY, - to read it from stdin, or --file",
    "store copy orders": "Missing option '--to'; see qframe store copy --help",
    "slots list orders g 3": "Got unexpected extra argument (3); see qframe slots list --help",
    "topics show orders --from": "No such option '--from'; see qframe topics show --help",
    "topics list --wacth": "No such option '--wacth'. Did you mean '--watch'? "
    "See qframe topics list --help",
    "topics list --from": "Option '--from' requires an argument",
    "topics declare orders --partitions 4": "option '--partitions': there is no such option; "
    "use --slots",
    "messages peek orders g --limit 0": "Invalid value for '--limit': 0 is out of range: "
    "it must be from 1 to 100000; see qframe messages peek --help",
    "publish orders 1 --priority high": "Invalid value for '--priority': 'high' is not a whole "
    "number in the digits 0 to 9; see qframe publish --help",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_told_in_one_line_that_says_what_is_right(
    program: Program, words: str
) -> None:
    assert program.refused(*words.split(), code=2) == f"error: {MISTAKES[words]}\n"


def test_a_noun_alone_shows_its_verbs(program: Program) -> None:
    ran = program.run("keys")
    assert (ran.code, ran.out) == (2, "")
    for verb in ("pause", "resume", "skip", "unblock"):
        assert f"\n  {verb} " in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "list"],
        ["groups", "list", "t"],
        ["workers", "list"],
        ["slots", "list", "t", "--watch"],
        ["messages", "peek", "t", "g"],
        ["explain", "t", "m"],
        ["store", "verify"],
        ["groups", "seek", "t", "g", "earliest"],
        ["dead", "list", "t", "g"],
        ["publish", "t", "1"],
        ["console"],
        ["topics", "list", "--store", "sqlite+pysqlite:///qframe.db"],
        ["store", "migrate", "--check", "--store", "sqlite:///qframe.db?synchronous=normal"],
    ],
)
def test_reading_makes_no_database(program: Program, words: list[str]) -> None:
    assert "does not exist yet" in program.refused(*words)
    assert list(program.directory.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["nonsense", "mongodb://host/db", "sqlite://", "://", "sqlite:///missing/folder/q.db"]
)
def test_a_store_that_cannot_be_is_refused(program: Program, url: str) -> None:
    for words in (["topics", "list"], ["topics", "declare", "t"], ["publish", "t", "1"]):
        assert "Traceback" not in program.refused(*words, "--store", url)


@pytest.mark.gate
def test_a_store_that_nobody_runs_is_refused_without_its_password(program: Program) -> None:
    for url in ("redis://:hunter2@127.0.0.1:1/0", "postgresql+psycopg://me:hunter2@127.0.0.1:1/x"):
        said = program.refused("topics", "list", "--store", url)
        assert "hunter2" not in said


def test_a_server_of_another_sort_is_refused(program: Program) -> None:
    class Web(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            place = f"127.0.0.1:{server.server_address[1]}"
            said = program.refused("topics", "list", "--store", f"redis://{place}")
            assert "the server there is not Redis" in said
            said = program.refused("topics", "list", "--store", f"postgresql+psycopg://{place}/x")
            assert "cannot be reached" in said
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["explain"], "nothing names a message; give its ID, --key or --offset"),
        (["explain", "a", "b", "c"], "'a b c': it is no id"),
        (["dead", "retry", "t", "g"], "it was given no message id"),
        (["dead", "drop", "t", "g", "m", "--all"], "it was given both ids and --all"),
        (["dead", "retry", "t", "g", "m", "--until", "1-1-1"], "it was given both ids and --all"),
        (["messages", "peek", "t", "g", "--state", "foo"], "--state 'foo': there is no such state"),
        (["search", "--state", "foo"], "--state 'foo': there is no such state"),
        (["workers", "list", "--watch", "--stacks"], "stacks are asked for once"),
        (["timers", "edit", "t", "k"], "it needs a change; give --body, --at or --delay"),
        (["timers", "edit", "t", "k", "--at", "1", "--delay", "1h"], "it has --at and --delay"),
        (["timers", "move", "t", "k"], "give --at, --delay or --shift"),
        (["timers", "move", "t", "k", "--delay", "1h", "--shift", "1h"], "has --delay and --shift"),
        (["timers", "move", "t"], "or --all"),
        (["timers", "move", "t", "--all"], "it needs one time; give --at or --shift"),
        (["timers", "move", "t", "--all", "--delay", "1h"], "beside --all it has no use for"),
        (["timers", "show", "t"], "it needs a timer; give KEY or --id"),
        (["timers", "add", "t", "1"], "it needs a time; give --at or --delay"),
        (["publish", "t", "1", "--envelopes"], "need --file"),
        (["publish", "t", "1", "--key-field", "k"], "need --file"),
        (["publish", "t", "1", "--file", "a.jsonl"], "the file holds the messages"),
        (["publish", "t", "1", "--delay", "5s", "--at", "1"], "it has --delay and --at; give one"),
        (["publish", "t", "1", "--within", "5s", "--at", "1"], "it has --at and --within"),
        (["explain", "t", "m", "--offset", "3"], "beside --offset it has no use for ID"),
        (["schedules", "preview"], "it needs a schedule or a timing; give NAME or --when"),
        (["schedules", "preview", "d", "--when", "@daily"], "it has NAME and --when"),
        (["schedules", "preview", "d", "--tz", "UTC"], "beside a NAME it has no use for --tz"),
        (["ping", "--port", "abc"], "--port 'abc' is not a port"),
        (["ping", "--port", "1", "--timeout", "x"], "--timeout 'x' is no number of seconds"),
    ],
)
def test_words_that_do_not_go_together_are_told_in_a_line_and_end_with_2(
    program: Program, words: list[str], shown: str
) -> None:
    program.ok("topics", "declare", "t")
    assert shown in program.refused(*words, code=2)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["groups", "list", "nope"], "topic 'nope': nobody has declared it in sqlite:///"),
        (["push", "t", "partner", "https://partner.example/hook"], "'QFRAME_PUSH_SECRETS': it is"),
        (["topics", "list", "--store", "mysql+pymysql://q:p@ss@h/queue"], "write %40 for @"),
        (
            ["workers", "list", "--coordinator", "etcd://me:x@h/y"],
            "coordinator 'etcd://***@h/y': there is",
        ),
        (["messages", "peek", "t", "nope"], "group 'nope': it has never subscribed"),
        (["groups", "seek", "q", "g", "earliest"], "only a stream can be replayed"),
        (["groups", "drop", "t", "g", "--yes"], "1 of its workers are alive"),
        (["groups", "tune", "t", "g", "--threads", "many"], "it is not a whole number"),
        (["groups", "tune", "t", "g", "--threads", "4", "--rate", "0/s"], "1 to 1000000 times"),
        (["schedules", "put", "x", "61 * * * *", "t"], "use five fields"),
        (["schedules", "put", "x", "@daily", "t", "--body", "{"], "it is not JSON"),
        (["schedules", "put", "x", "@daily", "t", "--start", "2027-01-01"], "2027-01-01T00:00:00Z"),
        (["schedules", "pause", "x"], "qframe schedules list"),
        (["timers", "list", "q", "--state", "gone"], "there is no such state"),
        (["timers", "add", "q", "{", "--delay", "1h"], "it is not JSON"),
        (["timers", "add", "q", "1", "--at", "2027-03-01"], "2027-03-01T00:00:00Z is UTC"),
        (["timers", "cancel", "t", "a"], "have no name of their own"),
        (["timers", "import", "q", "/nowhere"], "name a readable file"),
        (["bench", "--kind", "strem"], "there is no such kind"),
        (["store", "metrics", "--port", "abc"], "--port 'abc'"),
        (["worker", "json", "--metrics-port", "here", "--processes", "2"], "--metrics-port 'here'"),
    ],
)
def test_what_a_store_or_its_topics_do_not_allow_is_told_in_a_line_and_changes_nothing(
    program: Program, words: list[str], shown: str
) -> None:
    with program.app() as app:
        for topic in (Topic("t", slots=1), Topic("q", kind="delay", slots=1)):
            app.declare(topic)
            app.store.subscribe(topic, "g")
            app.store.heartbeat(topic, "g", "w", 60_000)
        before = repr(app.admin.topics())
        assert shown in program.refused(*words)
        assert repr(app.admin.topics()) == before


def test_ctrl_c_while_it_loads_ends_it_without_a_traceback(program: Program) -> None:
    program.write(
        "pressing.py",
        """
import os
import signal
import sys

import qframe_ping


def press(event: str, facts: tuple) -> None:
    if event == "import" and facts[0] == "qframe.cli.main":
        os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "&" leaves it ignored
sys.addaudithook(press)
qframe_ping.main()
""",
    )
    ran = subprocess.run(
        [sys.executable, "pressing.py", "topics", "list"], cwd=program.directory,
        env=program.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_an_output_that_cannot_be_written_is_told_in_a_line(program: Program) -> None:
    program.ok("topics", "declare", "t")
    command = [sys.executable, "-m", "qframe", "topics", "list"]
    options: dict[str, Any] = {"cwd": program.directory, "env": program.environment()}
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, **options)
    assert ran.returncode == 1
    assert ran.stderr == "error: the output cannot be written: No space left on device\n"
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    ran = subprocess.run(closed, stderr=subprocess.PIPE, text=True, **options)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_file_that_is_no_database_is_refused(program: Program) -> None:
    program.write("qframe.db", "this is no database at all, it is a text of some length\n" * 20)
    program.refused("topics", "list")
    program.refused("topics", "declare", "t")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["topics", "list", "--namespace", "a b"], "namespace 'a b': it has a wrong character"),
        (["--namespace", "a b", "topics", "list"], "namespace 'a b': it has a wrong character"),
        (
            ["topics", "list", "--config", "none.toml"],
            "--config 'none.toml': the file does not exist",
        ),
        (["topics", "declare", "a b"], "use 1 to 64 of the characters"),
        (["topics", "declare", "t", "--kind", "queue"], "there is no such kind"),
        (["topics", "declare", "t", "--slots", "6"], "it must be a power of two"),
        (["topics", "declare", "t", "--retain", "long"], "it is not a duration"),
    ],
)
def test_a_wrong_value_is_named_with_its_rule(
    program: Program, words: list[str], shown: str
) -> None:
    assert shown in program.refused(*words)
    assert not (program.directory / "qframe.db").exists()


def test_a_duration_may_be_seconds(program: Program) -> None:
    long = ("--retain", "3600", "--history", "86400", "--dedupe-window", "600")
    program.ok("topics", "declare", "t", *long)
    program.ok("topics", "declare", "u", "--kind", "ordered", "--gap-timeout", "1.5")
    rules = ("--catch-up", "all", "--window", "3600", "--jitter", "5", "--json")
    put = program.ok("schedules", "put", "daily", "@daily", "t", *rules).json
    assert (put["window_ms"], put["jitter_ms"]) == (3_600_000, 5_000)


def test_an_empty_store_says_what_to_do(program: Program) -> None:
    program.ok("topics", "declare", "t")
    said = program.ok("topics", "list", "--namespace", "other").out
    assert said.startswith("no topics yet in sqlite:///")
    assert ", namespace other; declare one: qframe topics declare" in said
    assert program.ok("topics", "list", "--namespace", "other", "--json").json == []
    assert (
        program.ok("store", "verify", "--namespace", "other").out
        == "no topics yet: nothing to verify\n"
    )


def test_a_program_that_its_handlers_import_is_told_to_keep_its_app_elsewhere(
    program: Program,
) -> None:
    """It is loaded twice, and the app that runs is not the one that has the handlers."""
    program.write(
        "shop.py",
        "from qframe import QFrame, Topic\n\napp = QFrame()\norders = Topic('orders')\n"
        "import handlers\n\nif __name__ == '__main__':\n    app.run(burst=True)\n",
    )
    program.write(
        "handlers.py",
        "from shop import app, orders\n\n\n@app.consumer(orders, group='billing')\n"
        "def bill(order: int) -> None: ...\n",
    )
    ran = program.run(module="shop")
    assert ran.code == 1
    assert "none is registered with this app" in ran.err
    assert "keep the app in a module of its own" in ran.err


@pytest.mark.parametrize("imports_first", [True, False])
def test_a_module_of_handlers_that_runs_twice_is_told_how_to_run_once(
    program: Program, imports_first: bool
) -> None:
    """Its package imports it before it runs, or it imports its own package when it has begun."""
    declared = (
        "@consumer('orders', group='billing')\ndef bill(order: int) -> None: ...\n",
        "import shop.all\n",
    )
    begin = "from qframe import consumer, default_app\n\n"
    end = "\nif __name__ == '__main__':\n    default_app().run(burst=True)\n"
    (program.directory / "shop").mkdir()
    program.write("shop/__init__.py", "from . import handlers\n" if imports_first else "")
    program.write("shop/all.py", "from . import handlers\n")
    program.write(
        "shop/handlers.py", begin + (declared[0] if imports_first else "".join(declared)) + end
    )
    ran = program.run(module="shop.handlers")
    assert ran.code == 1
    assert "its file runs twice, as __main__ and as shop.handlers, which is imported too" in ran.err
    assert (
        "run qframe worker shop.handlers, or call run() in a module that nobody imports" in ran.err
    )
    program.ok("topics", "declare", "orders")
    program.ok("worker", "shop.handlers", "--burst")
