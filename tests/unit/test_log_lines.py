"""Log lines on a terminal: short, wrapped between facts, and safe to show."""

from __future__ import annotations

import io
import json
import re

import pytest

from qframe.telemetry.lines import make_logger


class Terminal(io.StringIO):
    """A stream that is a terminal, 80 columns wide."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("NO_COLOR", "1")
    return Terminal()


def shown(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_a_line_is_time_level_event_and_then_the_facts(stream: Terminal) -> None:
    make_logger("auto", stream).info("slot.taken", topic="mail", count=4)
    (line,) = shown(stream)
    assert re.fullmatch(r"\d\d:\d\d:\d\d info     slot.taken  topic=mail count=4", line)


def test_a_long_line_is_wrapped_between_facts_and_indented(stream: Terminal) -> None:
    facts = {f"fact{number}": f"value-{number}" * 2 for number in range(9)}
    make_logger("auto", stream).warning("delivery.retried", **facts)
    rows = shown(stream)
    assert len(rows) > 1
    assert all(len(row) <= 80 for row in rows)
    assert all(row.startswith(" " * 9 + "fact") for row in rows[1:])
    words = " ".join(row.strip() for row in rows)
    assert all(f"{name}={value}" in words for name, value in facts.items())


def test_a_line_that_goes_elsewhere_is_not_wrapped() -> None:
    stream = io.StringIO()
    make_logger("console", stream).info("x", **{f"fact{number}": "v" * 30 for number in range(9)})
    assert len(shown(stream)) == 1


def test_a_traceback_and_further_lines_of_a_text_stand_below(stream: Terminal) -> None:
    make_logger("auto", stream).error("first\nsecond", traceback="Traceback:\n  line\n\nKeyError")
    assert [row[9:] for row in shown(stream)][1:] == [
        "second", "Traceback:", "  line", "", "KeyError",
    ]  # fmt: skip
    assert shown(stream)[0].endswith("error    first")


def test_what_would_move_the_cursor_is_spelt_out(stream: Terminal) -> None:
    logger = make_logger("auto", stream)
    logger.error("\x1b[2Jevent", key="\x1b[2J", at="\x07 in f", traceback="\x1b[2Jtrace")
    assert "\x1b" not in stream.getvalue()
    assert "\x07" not in stream.getvalue()
    assert stream.getvalue().count(r"\x1b[2J") == 3


def test_a_value_of_several_words_is_quoted_and_a_place_is_not(stream: Terminal) -> None:
    make_logger("auto", stream).info("x", error="no such key", empty="", at="a.py:1 in f (b.py:2)")
    assert shown(stream)[0].endswith("error='no such key' empty='' at=a.py:1 in f (b.py:2)")


def test_a_terminal_has_colours_unless_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    make_logger("auto", stream).error("delivery.dead", key="a")
    assert "\x1b[31merror   \x1b[0m \x1b[1mdelivery.dead\x1b[0m  key=a" in stream.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_line_of_json_is_json_whatever_the_stream_can_write(encoding: str) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding, errors="backslashreplace", write_through=True)
    key = "M\xfcller \u65e5 \U0001f600 \udcff"
    make_logger("json", stream).error("delivery.dead", key=key)
    assert json.loads(written.getvalue().decode("utf-8"))["key"] == key
