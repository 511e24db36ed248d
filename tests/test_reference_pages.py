"""The reference pages name what the code has: nothing is missing there, and nothing is made up."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
from reader_order import DOCS, ROOT

import qframe
from qframe import Backoff, Message, Outgoing, QFrameError, Topic
from qframe.app.pull import PullKeywords
from qframe.errors import BadInput
from qframe.producing.outgoing import MessageOptions
from qframe.telemetry import logs
from qframe.topic import duration_ms

REFERENCE = DOCS / "reference"
SUBJECTS = sorted({name.split(".")[0] for name in {*logs._LEVELS, *logs._UNTOLD}})
EVENT = re.compile(rf'"((?:{"|".join(SUBJECTS)})\.[a-z_]+)"')


def rows(page: str) -> dict[str, list[str]]:
    """The cells of each row of the page's tables, by the names in the first one."""
    found: dict[str, list[str]] = {}
    for line in (REFERENCE / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for name in re.findall(r"`([\w.]+)", cells[0]) if cells else ():
            found[name] = cells[1:]
    return found


def test_every_option_of_publish_is_explained() -> None:
    shown = rows("publish.md")
    assert {"body", *MessageOptions.__annotations__} <= set(shown)
    assert {"body", *MessageOptions.__annotations__} == set(Outgoing.__struct_fields__)
    assert set(shown) <= set(Outgoing.__struct_fields__)


def test_the_page_of_pulls_names_every_option() -> None:
    text = (DOCS / "pulling.md").read_text(encoding="utf-8")
    said = text.partition("a pull takes ")[2].partition(".\n")[0]
    assert {*re.findall(r"`(\w+)`", said)} == {*PullKeywords.__annotations__} - {"timeout"}


@pytest.mark.parametrize(("page", "kind"), [("topic.md", Topic), ("backoff.md", Backoff)])
def test_every_parameter_and_its_default_is_explained(page: str, kind: type) -> None:
    shown = rows(page)
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:  # it takes none, and refuses each by its name
            continue
        assert name in shown, f"{kind.__name__}({name}) is not on {page}"
        if parameter.default is not parameter.empty:
            told = shown[name][1].strip("`")
            default = parameter.default
            assert is_same(told, default), f"{kind.__name__}({name}): {told}, and not {default}"


def is_same(told: str, default: object) -> bool:
    """Whether a page tells a default, in seconds or in words."""
    if isinstance(default, float) and told.isdigit():
        return float(told) == default
    if isinstance(default, float | str) and re.fullmatch(r"\d+(ms|s|m|h|d)", told):
        return duration_ms(told, "told") == duration_ms(default, "default")
    return told == str(default)


def test_every_attribute_of_a_message_is_explained() -> None:
    public = {name for name in dir(Message) if not name.startswith("_")}
    assert public == set(rows("message.md"))


def test_every_error_is_explained_under_its_family() -> None:
    public = {
        name: value
        for name in qframe.__all__
        if inspect.isclass(value := getattr(qframe, name)) and issubclass(value, QFrameError)
    }
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    bad_input, others = text.split("\n## Bad input\n")[1].split("\n## ", 1)
    first = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
    bad = {name for name, value in public.items() if issubclass(value, BadInput)} - {"BadInput"}
    assert set(first.findall(bad_input)) == bad
    assert set(first.findall(others)) == set(public) - bad - {"BadInput", "QFrameError"}


def test_every_event_is_explained_with_its_level() -> None:
    emitted: set[str] = set()
    for file in (ROOT / "qframe").rglob("*.py"):
        if file != Path(logs.__file__):
            emitted.update(EVENT.findall(file.read_text(encoding="utf-8")))
    shown = {name: cells for name, cells in rows("events.md").items() if "." in name}
    assert set(shown) == emitted
    assert emitted >= {*logs._LEVELS, *logs._UNTOLD}
    for name, (level, *_) in shown.items():
        expected = "not logged" if name in logs._UNTOLD else logs._LEVELS.get(name, "debug")
        assert level == expected, f"{name} is {expected}"


def test_every_fact_of_an_event_is_explained() -> None:
    shown = rows("events.md")
    for file in (ROOT / "qframe").rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not call.args:
                continue
            first = call.args[0]
            name = first.value if isinstance(first, ast.Constant) else None
            if ast.unparse(call.func).endswith("audit.record"):
                name = "admin.action"
            if isinstance(name, str) and EVENT.fullmatch(f'"{name}"'):
                given = {each.arg for each in call.keywords if each.arg} - {"topic", "group"}
                told = set(re.findall(r"\w+", shown[name][1]))
                assert given <= told, f"{name} in {file.name} has more facts: {given - told}"


def test_every_unit_of_a_duration_is_explained() -> None:
    units = [name for name in rows("durations.md") if name.isalpha()]
    assert [duration_ms(f"1{unit}", "unit") for unit in units] == [
        1, 1000, 60_000, 3_600_000, 86_400_000
    ]  # fmt: skip
