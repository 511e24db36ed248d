"""Numbers and durations in texts: ASCII digits alone, at every door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

import click
import pytest

import qframe_ping
from qframe.app.qframe import QFrame
from qframe.cli.main import cli
from qframe.cli.scale import _number as scale_number
from qframe.cli.seek import _position
from qframe.cli.times import duration_of, moment_of
from qframe.cli.tune import _number as tune_number
from qframe.digits import decimal_number, whole_number
from qframe.drivers.redis_servers import replicas_of, servers_of
from qframe.drivers.sql_postgres import _threshold
from qframe.errors import BadInput, BadOption
from qframe.http_port import address_of
from qframe.options.consumer import ConsumerOptions
from qframe.options.flow import RateLimit
from qframe.options.rules import options_of
from qframe.options.settings import Settings
from qframe.schedules.timing import Timing, checked_timing
from qframe.spark.options import _whole
from qframe.topic import Topic, duration_ms
from qframe.web.acts import _offsets
from qframe.web.forms import Form
from qframe.web.times import moment_of as typed_moment

REFUSED: Final = (BadInput, ValueError, click.BadParameter, qframe_ping.Misspelt)


def wait_options(text: str) -> object:
    return replicas_of(f"redis://localhost?wait_replicas={quote(text)}", "redis://localhost")


def ping_port(text: str) -> object:
    try:
        return qframe_ping._of_port(f"127.0.0.1:{text}", "/livez", 0.1)
    except qframe_ping.Unwell:  # nobody is there, and it is a port
        return text


DOORS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "a duration": ("10s", lambda text: duration_ms(text, "delay")),
    "a topic's history": ("10d", lambda text: Topic("t", history=text)),
    "a rate": ("10/s", RateLimit),
    "the time of a rate": ("1/10s", RateLimit),
    "an interval": ("every 10s", lambda text: checked_timing(Timing(when=text))),
    "a cron field": ("10 * * * *", lambda text: checked_timing(Timing(when=text))),
    "a date": ("2026-12-10", lambda text: checked_timing(
        Timing(when="0 0 * * *", exclude=(f"{text}/2026-12-10",)))),
    "--over": ("10", lambda text: duration_ms(duration_of(text), "over")),
    "--since": ("10", lambda text: moment_of(text, "since")),
    "an offset": ("10", lambda text: _position(text, None)),
    "--threads of tune": ("10", lambda text: tune_number("threads", text)),
    "per_worker of /scale": ("10", scale_number),
    "a port": ("8010", lambda text: address_of("--port", text)),
    "the port of ping": ("10", ping_port),
    "the timeout of ping": ("10", lambda text: qframe_ping._options(["--timeout", text])),
    "the database of a URL": ("10", lambda text: servers_of(f"redis://localhost/{quote(text)}")),
    "a timeout of a URL": (
        "10", lambda text: servers_of(f"redis://localhost?socket_timeout={quote(text)}")),
    "a number of a URL": (
        "10", lambda text: servers_of(f"redis://localhost?max_connections={quote(text)}")),
    "wait_replicas": ("10", wait_options),
    "prepare_threshold": ("10", lambda text: _threshold("postgresql://", text)),
    "an option of Spark": ("10", _whole("slots", 1, 100)),
    "offsets of a form": ("0:10", _offsets),
    "a number of a form": ("10", lambda text: Form({"threads": [f".{text}."[1:-1]]}).number(
        "threads")),
    "a moment of a form": ("2026-12-10", lambda text: typed_moment("at", text)),
    "a whole number": ("10", whole_number),
    "a number": ("10", decimal_number),
    "a number's fraction": ("0.10", decimal_number),
}  # fmt: skip
"""Doors through which a number comes as a text: a good one, and what reads it."""


TRIMMED: Final = ("an interval", "a cron field", "a number of a form")
"""Doors that take blanks and line ends off the whole text."""


def options() -> Iterator[Any]:
    """Each option that takes a number or a duration in a text."""
    for model in (Settings, ConsumerOptions):
        for name, option in options_of(model).items():
            for good in ("10s", "100000"):
                try:
                    option.rule.check(good)
                except (ValueError, BadOption):
                    continue
                if isinstance(option.rule.check(good), int | float):
                    yield pytest.param(good, option.rule.check, id=f"{model.__name__}.{name}")


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[Any]:
    """Each parameter of a command that is a number."""
    context = click.Context(command)
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        yield from commands(command.get_command(context, name), (*words, name))
    for parameter in command.get_params(context):
        if getattr(parameter.type, "wanted", None) in (int, float):

            def read(text: str, parameter: Any = parameter) -> object:
                return parameter.type_cast_value(context, text)

            good = next(each for each in ("10", "1010", "101010") if _is_read(read, each))
            yield pytest.param(good, read, id=" ".join((*words, parameter.name)))


def _is_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except click.BadParameter:
        return False
    return True


EVERY: Final = [
    *(pytest.param(good, read, id=name) for name, (good, read) in DOORS.items()),
    *options(),
    *commands(cli),
]


@pytest.mark.parametrize(("good", "read"), EVERY)
def test_a_number_in_a_text_is_one_of_ascii_digits_alone(
    good: str, read: Callable[[str], object]
) -> None:
    read(good)
    at = good.index("10")
    for wrong in ("1_0", "1\u0660", "\uff110", "1\xb2"):
        with pytest.raises(REFUSED):
            read(good[:at] + wrong + good[at + 2 :])


@pytest.mark.parametrize(("good", "read"), [each for each in EVERY if each.id not in TRIMMED])
def test_a_number_in_a_text_has_no_line_end_behind_it(
    good: str, read: Callable[[str], object]
) -> None:
    with pytest.raises(REFUSED):
        read(f"{good}\n")


@pytest.mark.parametrize("read", [whole_number, decimal_number])
def test_a_number_of_thousands_of_digits_is_refused_as_one_that_is_none(
    read: Callable[[str], float],
) -> None:
    with pytest.raises(ValueError, match="is not a"):
        read("9" * 5000)


def test_a_path_into_a_list_by_thousands_of_digits_leads_nowhere() -> None:
    with QFrame("model://") as app:
        app.declare(Topic("lists", slots=1))
        app.publish("lists", [[1]])
        for step, found in (("0.0", 1), ("9" * 5000, 0), ("0.\u0660", 0)):
            assert len(app.admin.search("lists", body={step: "1"}).records) == found
