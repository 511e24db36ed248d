"""The program as it is seen on a terminal of 80 columns: plain help, few rows, the next step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.text import Text

from qframe import Message, QFrame, Reject, Topic
from qframe.admin.owners import OwnerInfo, WorkerInfo
from qframe.cli import watch
from qframe.cli.main import cli
from qframe.cli.output import (
    console,
    drawn_table,
    say,
    say_aside,
    say_drawn,
    say_error,
    say_json_array,
    table,
)
from qframe.cli.ownership import draw_slots, draw_workers
from qframe.errors import BadUrl, QFrameError

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
JSON_PAGE = PAGE.parent / "reference" / "json.md"
RELAY = "qframe.outbox.shop-0196d5c0a629c6"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def app(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, terminal: None) -> Iterator[QFrame]:
    """A store with topics, which commands look into."""
    url = f"sqlite:///{tmp_path / 'q.db'}"
    monkeypatch.setenv("QFRAME_STORE", url)
    with QFrame(url) as app:
        app.declare(Topic("orders", kind="ordered", slots=4))
        app.declare(Topic("mail", slots=2))
        app.store.declare(Topic(RELAY, slots=2))
        yield app


def shown(*words: str) -> str:
    ran = CliRunner().invoke(cli, words, prog_name="qframe", catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return ran.output


def refused(*words: str) -> str:
    with pytest.raises(QFrameError) as caught:
        CliRunner().invoke(cli, words, prog_name="qframe", catch_exceptions=False)
    return str(caught.value)


def found(words: tuple[str, ...]) -> click.Command:
    """The command of these words."""
    command: click.Command | None = cli
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None, words
    return command


def is_group(words: tuple[str, ...]) -> bool:
    return isinstance(found(words), click.Group)


def flags_of(words: tuple[str, ...]) -> set[str]:
    return {flag for parameter in found(words).params for flag in parameter.opts}


def commands(words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every noun and of every command."""
    group = found(words)
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            yield (*words, name)
            yield from commands((*words, name))


def test_the_page_names_all_commands_that_take_the_flags_of_a_target() -> None:
    flags = {"--store", "--timers-db", "--namespace", "--config"}
    taken = {" ".join(words): flags_of(words) for words in commands() if not is_group(words)}
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    said = page.partition("take `--coordinator`: ")[2].partition(". ")[0]
    assert set(re.findall("`([^`]+)`", said)) == {
        name for name, own in taken.items() if "--coordinator" in own
    }
    others = {name: flags & own for name, own in taken.items() if not flags <= own}
    assert others == {"ping": set(), "store migrate": {"--store", "--config"}}
    assert "but `ping`, which needs none of them, and `store migrate`, which takes" in page


def test_the_page_names_every_option() -> None:
    named = set(re.findall(r"--[a-z][a-z-]*", PAGE.read_text(encoding="utf-8")))
    flags = {
        (" ".join(words), flag)
        for words in commands()
        for parameter in found(words).params
        if not getattr(parameter, "hidden", False)
        for flag in parameter.opts
        if flag.startswith("--")
    }
    assert {(command, flag) for command, flag in flags if flag not in named} == set()


def test_the_help_of_every_command_fits_the_terminal(terminal: None) -> None:
    for words in commands():
        text = CliRunner().invoke(cli, [*words, "--help"]).output
        assert text.startswith(f"Usage: qframe {' '.join(words)} ")
        assert max(map(len, text.splitlines())) <= 80, words


def test_an_option_of_a_consumer_is_told_where_it_belongs(app: QFrame) -> None:
    said = refused("worker", "shop", "--threads", "4")
    assert said.startswith(
        "option '--threads': it is an option of each consumer; write @consumer(…, thr"
    )
    assert said.endswith("qframe groups tune TOPIC GROUP --threads …")
    assert refused("worker", "shop", "--max-attempts=3").endswith(
        "write @consumer(…, max_attempts=…) in the module"
    )


def test_a_stream_that_no_group_reads_shows_what_it_holds(app: QFrame) -> None:
    app.publish_many("mail", [1, 2, 3])
    app.publish("mail", 4, delay=60)
    row = shown("topics", "list").splitlines()[1]
    assert row.split() == ["mail", "stream", "2", "(none", "yet)", "1", "3", "0", "0", "0"]


def test_topics_that_qframe_keeps_for_itself_are_shown_on_request(app: QFrame) -> None:
    assert RELAY not in shown("topics", "list")
    assert RELAY in shown("topics", "list", "--all")
    assert RELAY in shown("topics", "list", "--json")
    assert RELAY in shown("topics", "show", RELAY)


def test_one_topic_is_shown_by_its_name(app: QFrame) -> None:
    assert [line.split()[0] for line in shown("topics", "show", "orders").splitlines()] == [
        "topic", "orders",
    ]  # fmt: skip
    assert json.loads(shown("topics", "show", "mail", "--json"))[0]["name"] == "mail"
    assert "did you mean 'orders'?" in refused("topics", "show", "ordrs")


def drawn(parts: list[Any]) -> str:
    out = console()
    with out.capture() as captured:
        for part in parts:
            out.print(part)
    return captured.get()


def test_a_workers_consumers_are_those_of_its_user() -> None:
    worker = WorkerInfo(
        id="vm-1-a", since_ms=0, until_ms=9, slots=4,
        consumers=["orders/billing", f"{RELAY}/relay"],
    )  # fmt: skip
    only_relay = WorkerInfo(
        id="vm-2-b", since_ms=0, until_ms=9, slots=4, consumers=[f"{RELAY}/relay"]
    )
    few = drawn(draw_workers([worker, only_relay], 9))
    assert "orders/billing" in few
    assert "(none of its own)" in few
    assert RELAY not in few
    assert RELAY in drawn(draw_workers([worker], 9, everything=True))


def test_slots_of_one_owner_are_one_row_and_epochs_have_no_zeros_in_front() -> None:
    owned = [
        OwnerInfo(
            topic="t", group="g", slot=slot, since_ms=None if slot == 7 else 0,
            worker="vm-1-a" if slot in (0, 1, 2, 5) else "vm-2-b" if slot != 7 else None,
            epoch=None if slot == 7 else f"{0x284df00 + slot:016x}",
        )
        for slot in range(8)
    ]  # fmt: skip
    rows = [line.split() for line in drawn(draw_slots("t", owned, 0)).splitlines()]
    assert rows == [
        ["group", "slots", "owner", "since", "epoch"],
        ["g", "0-2,5", "vm-1-a", "0", "s", "ago", "284df00-284df05"],
        ["3-4,6", "vm-2-b", "0", "s", "ago", "284df03-284df06"],
        ["7", "nobody"],
    ]


def test_a_database_in_memory_is_told_the_store_for_it() -> None:
    with pytest.raises(BadUrl, match="model://"), QFrame("sqlite:///:memory:") as app:
        app.store.now_ms()


def test_topics_and_groups_are_looked_at_again_and_again(
    app: QFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_looks", lambda view, look, heard: iter([view, look()]))
    for words in (
        ("topics", "list"),
        ("topics", "show", "orders"),
        ("groups", "list", "orders"),
        ("workers", "list"),
    ):
        first, second = shown(*words, "--watch", "--json").splitlines()
        assert json.loads(first) == json.loads(second)


def test_a_json_array_is_printed_as_its_values_come(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []

    def values() -> Iterator[Any]:
        for value in ({"a": ["x\ny", {}]}, [], "z"):
            yield value
            printed.append(capsys.readouterr().out)

    say_json_array(values())
    assert all(printed)
    text = "".join(printed) + capsys.readouterr().out
    assert text == json.dumps([{"a": ["x\ny", {}]}, [], "z"], indent=2) + "\n"
    say_json_array(())
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize(
    "rows",
    [
        [("id-1", 1, None, "oh no"), ("語語", 10_000, "", "")],
        [(Text("gone", style="red"), 5, "a\nb", "\x1b[1m")],
        [],
    ],
)
def test_a_table_in_a_pipe_is_what_rich_would_draw(
    rows: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("id", "attempts", "語", "error")
    say_drawn(drawn_table(columns, rows, cut=True))
    drawn = capsys.readouterr().out
    table(columns, rows, cut=True)
    assert capsys.readouterr().out == drawn


def test_no_text_moves_the_cursor_or_turns_others_round(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = "red \x1b[31m, back\x08, turned \u202e and \x9bK"
    say(bad)
    say_aside(bad)
    say_error(bad)
    table(("body",), [(bad,)])
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert all(char.isprintable() or char == "\n" for char in text)
        assert text.count(r"red \x1b[31m, back\x08, turned \u202e and \x9bK") == 2


@pytest.mark.parametrize("tell", [say_error, say_aside])
def test_what_is_told_on_stderr_has_no_credential(
    capsys: pytest.CaptureFixture[str], tell: Callable[[str], None]
) -> None:
    tell("no reply from redis://ann:hunter2@db:6379, password=hunter2")
    told = capsys.readouterr().err
    assert "hunter2" not in told
    assert "redis://***@db:6379" in told


# `--json` is what docs/reference/json.md says: a program may rely on its fields.


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QFrame]:
    """A store with a message of each state, one of them dead."""
    folder = tmp_path_factory.mktemp("json")
    with QFrame(f"sqlite:///{folder / 'q.db'}") as app:
        app.events.listen(lambda name, facts: None)

        @app.consumer(Topic("orders", kind="delay", slots=1), group="g")
        def handle(message: Message) -> None:
            raise Reject("no")

        app.publish("orders", 1, id="dead")
        app.run(burst=True)
        app.publish("orders", 2, id="due", key="k")
        yield app


def told(full: QFrame, *words: str) -> Any:
    command = [*words, "--json", "--store", full.settings.store]
    ran = CliRunner().invoke(cli, command, catch_exceptions=False)
    return json.loads(ran.stdout)


def documented() -> dict[str, list[str]]:
    """The fields of each command's objects, by the command as the page has it."""
    row = re.compile(r"^\| `qframe ([^`]+)` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
    rows = row.findall(JSON_PAGE.read_text(encoding="utf-8"))
    return {command: re.findall(r"`(\w+)`", fields) for command, fields in rows}


def first(found: Any) -> dict[str, Any]:
    """The object, or the first of a list of them."""
    return dict(found[0] if isinstance(found, list) else found)


COMMANDS = {
    "topics list": ("topics", "list"),
    "topics show TOPIC": ("topics", "show", "orders"),
    "groups list TOPIC": ("groups", "list", "orders"),
    "slots list TOPIC": ("slots", "list", "orders"),
    "messages peek TOPIC GROUP": ("messages", "peek", "orders", "g"),
    "search": ("search", "--key", "k"),
    "dead list TOPIC GROUP": ("dead", "list", "orders", "g"),
    "timers list TOPIC": ("timers", "list", "orders"),
    "timers show TOPIC KEY": ("timers", "show", "orders", "k"),
    "timers move TOPIC --all": ("timers", "move", "orders", "--all", "--shift", "1h", "--dry-run"),
    "store verify": ("store", "verify"),
    "groups tune TOPIC GROUP": ("groups", "tune", "orders", "g"),
    "groups scale TOPIC GROUP": ("groups", "scale", "orders", "g", "--over", "0"),
    "store copy TOPIC --to URL": ("store", "copy", "orders", "--to", "{other}", "--dry-run"),
    "doctor": ("doctor",),
    "bench": ("bench", "--yes", "--kind", "stream", "--count", "1000"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_json_has_the_fields_of_the_page(
    full: QFrame, tmp_path: Path, command: str
) -> None:
    """It may have more: a program must not mind those."""
    other = f"sqlite:///{tmp_path / 'other.db'}"
    words = [word.format(other=other) for word in COMMANDS[command]]
    found = first(told(full, *words))
    assert set(documented()[command]) <= set(found)


def test_the_page_has_no_command_that_is_not_tried() -> None:
    tried = {
        *COMMANDS,
        "workers list",
        "workers list --stacks",
    }  # live workers: tests/integration/cli/test_ownership.py
    assert set(documented()) == tried


def test_errors_are_one_line_and_without_colour_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    say_error("store away:\nsee its log")
    assert "\x1b[31m" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    say_error("store away:\nsee its log")
    assert capsys.readouterr().err == "error: store away: see its log\n"


ASKING = [("dead", "drop"), ("outbox", "drop"), ("timers", "cancel"), ("keys", "skip")]
BESIDE = [("dead", "retry"), ("outbox", "retry"), ("timers", "move"), ("keys", "unblock")]


@pytest.mark.parametrize("words", [*ASKING, *BESIDE], ids=" ".join)
def test_a_command_that_does_not_ask_takes_the_yes_of_the_one_beside_it(
    words: tuple[str, ...],
) -> None:
    [yes] = [each for each in found(words).params if "--yes" in each.opts]
    assert isinstance(yes, click.Option)
    assert yes.hidden == (words in BESIDE)
