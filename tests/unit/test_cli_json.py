"""`--json` is what docs/reference/json.md says: a program may rely on its fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from qframe import Message, QFrame, Reject, Topic
from qframe.cli.main import cli
from qframe.cli.output import say_error

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QFrame]:
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


@pytest.fixture
def other(tmp_path: Path) -> str:
    """The URL of another store."""
    return f"sqlite:///{tmp_path / 'other.db'}"


def said(app: QFrame, *words: str) -> Any:
    command = [*words, "--json", "--store", app.settings.store]
    ran = CliRunner().invoke(cli, command, catch_exceptions=False)
    return json.loads(ran.stdout)


def documented() -> dict[str, list[str]]:
    """The fields of each command's objects, by the command as the page has it."""
    row = re.compile(r"^\| `qframe ([^`]+)` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
    rows = row.findall(PAGE.read_text(encoding="utf-8"))
    return {command: re.findall(r"`(\w+)`", fields) for command, fields in rows}


def first(found: Any) -> dict[str, Any]:
    """The object, or the first of a list of them."""
    return dict(found[0] if isinstance(found, list) else found)


COMMANDS = {
    "topics": ("topics",),
    "topics TOPIC": ("topics", "orders"),
    "groups TOPIC": ("groups", "orders"),
    "slots TOPIC": ("slots", "orders"),
    "peek TOPIC GROUP": ("peek", "orders", "g"),
    "search": ("search", "--key", "k"),
    "dead list TOPIC GROUP": ("dead", "list", "orders", "g"),
    "timers list TOPIC": ("timers", "list", "orders"),
    "timers show TOPIC KEY": ("timers", "show", "orders", "k"),
    "timers move TOPIC --all": ("timers", "move", "orders", "--all", "--shift", "1h", "--dry-run"),
    "verify": ("verify",),
    "tune TOPIC GROUP": ("tune", "orders", "g"),
    "scale TOPIC GROUP": ("scale", "orders", "g", "--over", "0"),
    "copy TOPIC --to URL": ("copy", "orders", "--to", "{other}", "--dry-run"),
    "doctor": ("doctor",),
    "bench": ("bench", "--yes", "--kind", "stream", "--count", "1000"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_json_has_the_fields_of_the_page(app: QFrame, other: str, command: str) -> None:
    """It may have more: a program must not mind those."""
    words = [word.format(other=other) for word in COMMANDS[command]]
    found = first(said(app, *words))
    assert set(documented()[command]) <= set(found)


def test_the_page_has_no_command_that_is_not_tried() -> None:
    tried = {
        *COMMANDS,
        "workers",
        "workers --stacks",
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
