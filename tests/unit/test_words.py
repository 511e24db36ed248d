"""An option that is called as in another system is answered with its name here."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner

from qframe import QFrame, Topic
from qframe.app.pull import PullKeywords
from qframe.cli.main import cli
from qframe.errors import BadInput
from qframe.options.consumer import ConsumerKeywords
from qframe.options.settings import AppKeywords
from qframe.producing.outgoing import MessageOptions
from qframe.schedules.checked import ScheduleKeywords
from qframe.spark.options import READING, WRITING, address_of
from qframe.words import DOORS, WORDS, Door, Word, near_name

PAGE: Final = Path(__file__).parents[2] / "docs" / "coming-from.md"
APP: Final = QFrame("model://")


def names_at(function: Callable[..., Any], keywords: Any = None) -> set[str]:
    """The parameters of a function, and the keywords that it takes."""
    found = {*inspect.signature(function).parameters} - {"self", "options", "unknown"}
    return found | set(keywords.__annotations__ if keywords is not None else ())


def flags_of(command: str) -> set[str]:
    """The flags of a command."""
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    return {flag for each in found.params for flag in each.opts}


KNOWN: Final[dict[Door, set[str]]] = {
    "consumer": names_at(QFrame.consumer, ConsumerKeywords),
    "pull": names_at(QFrame.pull, PullKeywords),
    "publish": names_at(QFrame.publish, MessageOptions),
    "topic": names_at(Topic),
    "app": names_at(QFrame, AppKeywords),
    "schedule": names_at(QFrame.cron, ScheduleKeywords),
    "worker": flags_of("worker"),
    "spark": {*READING, *WRITING},
}


def worker(**given: Any) -> None:
    flags = [f"--{name.replace('_', '-')}=1" for name in given]
    raise CliRunner().invoke(cli, ["worker", "shop", *flags]).exception  # type: ignore[misc]


CALLED: Final[dict[Door, Callable[..., Any]]] = {
    "consumer": lambda **given: APP.consumer("orders", "billing", **given),
    "pull": lambda **given: APP.pull("orders", "billing", **given),
    "publish": lambda **given: APP.publish("orders", 1, **given),
    "topic": lambda **given: Topic("orders", **given),
    "app": lambda **given: QFrame("model://", **given),
    "schedule": lambda **given: APP.cron("@daily", topic="orders", **given)(len),
    "worker": worker,
    "spark": lambda **given: address_of(dict.fromkeys(given, "1"), may_be_new=False),
}
ANSWERS: Final = [
    pytest.param(name, door, option, word.note, id=f"{door}-{name}")
    for word in WORDS
    for name in word.names.split()
    for door, option in word.options.items()
]


@pytest.mark.parametrize(("name", "door", "option", "note"), ANSWERS)
def test_a_word_of_another_system_is_answered_with_an_option_that_this_door_has(
    name: str, door: Door, option: str, note: str
) -> None:
    assert option in KNOWN[door]
    assert name not in KNOWN[door]
    with pytest.raises(BadInput) as refused:
        CALLED[door](**{name: 1})
    shown = option if door == "worker" else f"did you mean {option!r}"
    assert shown in str(refused.value)
    assert door == "worker" or note in str(refused.value)


@pytest.mark.parametrize(
    ("door", "name", "shown"),
    [
        ("app", "concurrency", "did you mean 'threads' of @app.consumer"),
        ("publish", "maxRetries", "did you mean 'max_attempts' of @app.consumer, which counts"),
        ("topic", "consumer_group", "did you mean 'group' of @app.consumer"),
        ("consumer", "partitions", "did you mean 'slots' of Topic"),
        ("app", "workers", "did you mean '--processes' of qframe worker"),
        ("worker", "time_limit", "write @consumer(…, timeout=…)"),
    ],
)
def test_a_word_at_the_wrong_door_is_sent_to_the_door_that_has_it(
    door: Door, name: str, shown: str
) -> None:
    with pytest.raises(BadInput) as refused:
        CALLED[door](**{name: 1})
    assert shown in str(refused.value)


@pytest.mark.parametrize(
    ("command", "flag", "meant"),
    [
        (["publish", "orders", "1"], "--countdown", "--delay"),
        (["publish", "orders", "1"], "--eta", "--at"),
        (["topics", "declare", "orders"], "--partitions", "--slots"),
        (["topics", "declare", "orders"], "--retention", "--retain"),
    ],
)
def test_a_command_knows_the_words_of_its_options(
    command: list[str], flag: str, meant: str
) -> None:
    ran = CliRunner().invoke(cli, [*command, flag, "5"])
    assert f"use {meant}" in str(ran.exception)


def test_a_word_has_one_meaning() -> None:
    names = " ".join(word.names for word in WORDS).replace("_", "").replace(".", "").split()
    assert [name for name, times in Counter(names).items() if times > 1] == []


@pytest.mark.parametrize("door", DOORS)
def test_the_nearest_spelling_of_a_word_never_means_something_else(door: Door) -> None:
    """Nor would it, were it not in the table: a name that is near has the same meaning."""
    wrong = [
        (name, near)
        for word in WORDS
        for name in word.names.split()
        if door != "spark" or door in word.options  # of others it does not ask
        if (near := near_name(name, KNOWN[door])) not in (None, *word.options.values())
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("kye", "key"), ("thread", "threads"), ("maxAttempts", "max_attempts"),
        ("max_attemps", "max_attempts"), ("leese", "lease"), ("catchup", "catch_up"),
        ("queue", None), ("time_limit", None), ("retries", None),
    ],
)  # fmt: skip
def test_a_slip_of_the_keyboard_is_seen_and_a_likeness_is_not(name: str, meant: str | None) -> None:
    known = {*KNOWN["consumer"], *KNOWN["publish"], "catch_up"}
    assert near_name(name, known) == meant


def test_the_page_shows_the_table() -> None:
    lines = "\n".join(["| elsewhere | here |", "| --- | --- |", *map(row_of, WORDS)])
    assert lines in PAGE.read_text(encoding="utf-8"), f"the page should have:\n\n{lines}"


def row_of(word: Word) -> str:
    """A row of the page's table."""
    doors: dict[str, list[str]] = {}
    for door, option in word.options.items():
        doors.setdefault(option, []).append(f"`{DOORS[door]}`")
    here = ", ".join(f"`{option}` of {', '.join(places)}" for option, places in doors.items())
    names = ", ".join(f"`{name}`" for name in word.names.split())
    return f"| {names} | {here}{f'; {word.note}' if word.note else ''} |"
