"""Events become lines of the right level, without secrets, and not thousands of them."""

from __future__ import annotations

import io
import json
import re
import threading
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from eventually import eventually

from qframe.clock import VirtualClock
from qframe.errors import StoreUnavailable, UndecodableBody, WorkerFailed
from qframe.events import Events
from qframe.hooks import check_result
from qframe.message import Delivery, Message
from qframe.options.settings import Settings
from qframe.redaction import redacted
from qframe.retry import NeedRetry, Reject
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.binding import bind
from qframe.telemetry.lines import make_logger
from qframe.telemetry.logs import INTERVAL_S, EventLog, log_events

SECRET = "hunter2"


class Terminal(io.StringIO):
    """A stream that is a terminal, 80 columns wide."""

    def isatty(self) -> bool:
        return True


class Lines:
    """An event log on a virtual clock, and the lines that it has written."""

    def __init__(self, level: str = "info", *, full: bool = False) -> None:
        self.stream = io.StringIO()
        self.clock = VirtualClock()
        logger = make_logger("json", self.stream)
        self.log = EventLog(logger, level=level, full=full, clock=self.clock)
        self.events = Events()
        self.events.listen(self.log)

    def read(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        self.stream.seek(0)
        self.stream.truncate()
        return lines


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("name", "level"),
    [("worker.started", "info"), ("slot.lost", "warning"), ("delivery.dead", "error")],
)
def test_an_event_is_a_line_of_its_level(name: str, level: str) -> None:
    lines = Lines()
    lines.events.emit(name, topic="orders", consumers=["orders/billing", "orders/audit"], count=3)
    (line,) = lines.read()
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": name, "level": level, "topic": "orders", "count": 3,
        "consumers": "orders/billing, orders/audit",
    }  # fmt: skip


def test_lines_below_the_level_are_left_out() -> None:
    lines = Lines(level="error")
    lines.events.emit("worker.started")
    lines.events.emit("delivery.retried")
    lines.events.emit("delivery.dead")
    assert [line["event"] for line in lines.read()] == ["delivery.dead"]


def test_what_happens_to_every_message_is_no_line_and_an_unknown_event_is_for_debugging() -> None:
    lines = Lines(level="debug")
    lines.events.emit("delivery.acknowledged", elapsed_s=0.1)
    lines.events.emit("something.new", topic="orders")
    assert [(line["event"], line["level"]) for line in lines.read()] == [("something.new", "debug")]


def test_a_storm_is_one_line_at_once_and_one_per_interval() -> None:
    lines = Lines()
    for _ in range(1000):
        lines.events.emit("delivery.retried", topic="orders", group="billing")
    assert len(lines.read()) == 1
    lines.clock.advance(int(INTERVAL_S * 1000))
    lines.events.emit("delivery.retried", topic="orders", group="billing")
    (line,) = lines.read()
    assert line["times"] == 999
    lines.clock.advance(int(INTERVAL_S * 1000))
    lines.events.emit("slot.lost", topic="other", group="billing")
    assert [(line["event"], line.get("times")) for line in lines.read()] == [
        ("delivery.retried", 1),
        ("slot.lost", None),
    ]


def test_counts_of_what_was_held_back_are_added_up() -> None:
    lines = Lines()
    for count in (1, 20, 300):
        lines.events.emit("delivery.stale", topic="orders", group="billing", count=count)
    lines.log.flush()
    first, second = lines.read()
    assert first["count"] == 1
    assert (second["count"], second["times"]) == (320, 2)


def test_a_group_does_not_hold_back_the_lines_of_another() -> None:
    lines = Lines()
    for group in ("a", "b", "a", "b"):
        lines.events.emit("delivery.retried", topic="orders", group=group)
    assert [line["group"] for line in lines.read()] == ["a", "b"]


def test_stopping_writes_what_was_held_back_first() -> None:
    lines = Lines()
    lines.events.emit("delivery.dead", topic="orders", group="a")
    lines.events.emit("delivery.dead", topic="orders", group="a")
    lines.events.emit("worker.stopped")
    assert [line["event"] for line in lines.read()] == [
        "delivery.dead", "delivery.dead", "worker.stopped",
    ]  # fmt: skip


def test_no_line_is_lost_or_doubled_when_threads_tell_at_once() -> None:
    lines = Lines()

    def tell() -> None:
        for _ in range(500):
            lines.events.emit("delivery.stale", topic="t", group="g", count=1)

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.log.flush()
    assert sum(line["count"] for line in lines.read()) == 2000


def test_a_handlers_error_is_told_by_type_and_place_and_never_by_its_text() -> None:
    lines = Lines()
    error = raised(ValueError(f"bad order: {{'card': '{SECRET}'}}"))
    lines.events.emit("delivery.retried", topic="t", group="g", id="m-1", attempt=2, error=error)
    (line,) = lines.read()
    assert SECRET not in json.dumps(line)
    assert (line["error"], line["id"], line["attempt"]) == ("ValueError", "m-1", 2)
    assert line["at"].startswith("tests/unit/test_logs.py:")
    assert line["at"].endswith(" in raised")
    assert list(line)[-1] == "at"


def test_an_error_of_another_type_is_not_held_back_by_those_that_came_before() -> None:
    lines = Lines()
    for error in (KeyError("a"), KeyError("b"), ValueError("c"), KeyError("d")):
        lines.events.emit("delivery.retried", topic="t", group="g", error=raised(error))
    assert [line["error"] for line in lines.read()] == ["KeyError", "ValueError"]
    lines.log.flush()
    assert [(line["error"], line["times"]) for line in lines.read()] == [("KeyError", 2)]


def test_each_of_ten_dead_messages_has_a_line_and_of_hundreds_the_rest_are_counted() -> None:
    lines = Lines()
    for number in range(300):
        lines.events.emit("delivery.dead", topic="t", group="g", id=f"m-{number}")
    assert [line["id"] for line in lines.read()] == [f"m-{number}" for number in range(10)]
    lines.clock.advance(int(INTERVAL_S * 1000))
    lines.events.emit("delivery.dead", topic="t", group="g", id="next")
    assert [(line["id"], line.get("times")) for line in lines.read()] == [
        ("m-299", 290),
        ("next", None),
    ]


def test_a_full_line_has_the_text_and_the_traceback_and_a_repeated_one_has_neither() -> None:
    lines = Lines(full=True)
    for _ in range(2):
        error = raised(KeyError("customer_id"))
        lines.events.emit("delivery.retried", topic="t", group="g", error=error)
    lines.log.flush()
    first, again = lines.read()
    assert first["error"] == "KeyError: 'customer_id'"
    assert first["traceback"].startswith("Traceback (most recent call last):")
    assert first["traceback"].endswith("KeyError: 'customer_id'")
    assert (again["error"], "traceback" in again) == ("KeyError", False)


def test_a_full_line_of_what_is_no_failure_has_no_traceback() -> None:
    lines = Lines(full=True)
    for error in (NeedRetry(delay=1), Reject("no such card")):
        lines.events.emit("delivery.retried", topic="t", group="g", error=raised(error))
    retried, rejected = lines.read()
    assert rejected["error"] == "Reject: no such card"
    assert "traceback" not in retried
    assert "traceback" not in rejected


def test_a_wish_that_a_handler_returned_has_no_place_in_qframe() -> None:
    def ask(message: Message) -> NeedRetry:
        return NeedRetry(delay=1)

    message = Attempt(Delivery("m-1", None, None, b"1"), None)  # type: ignore[arg-type]
    with pytest.raises(NeedRetry) as caught:
        check_result(bind(ask)(message))
    caught.value.__traceback__ = caught.tb.tb_next
    lines = Lines()
    lines.events.emit("delivery.retried", topic="t", group="g", error=caught.value)
    (line,) = lines.read()
    assert (line["error"], "at" in line) == ("NeedRetry", False)


@pytest.mark.parametrize(
    ("kind", "log_format", "log_errors", "full"),
    [
        ("terminal", "auto", "auto", True),
        ("terminal", "json", "auto", False),
        ("terminal", "auto", "short", False),
        ("pipe", "auto", "auto", False),
        ("pipe", "console", "auto", False),
        ("pipe", "auto", "full", True),
    ],
)
def test_tracebacks_are_on_a_terminal_or_where_they_are_asked_for(
    kind: str, log_format: str, log_errors: str, full: bool
) -> None:
    stream = Terminal() if kind == "terminal" else io.StringIO()
    events = Events()
    log_events(events, Settings(log_format=log_format, log_errors=log_errors), stream)  # type: ignore[arg-type]
    events.emit("delivery.retried", error=raised(KeyError("customer_id")))
    assert ("customer_id" in stream.getvalue()) is full
    assert ("Traceback" in stream.getvalue()) is full


@dataclass
class Order:
    id: int
    currency: Literal["EUR"] = "EUR"

    def __post_init__(self) -> None:
        if self.id == 4711:
            raise ValueError("card 4711")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{}", "UndecodableBody: Object missing required field `id`"),
        (b'{"id":"4711"}', "UndecodableBody: Expected `int`, got `str` - at `$.id`"),
        (b'{"id":1,"currency":"4711"}', "UndecodableBody: Invalid enum value - at `$.currency`"),
        (b'[{"id":4711}]', "UndecodableBody: at `$["),
        (b'{"id":4711}', "UndecodableBody"),
        (b"{4711", "UndecodableBody: JSON is malformed: "),
    ],
)
def test_a_body_that_cannot_be_decoded_is_told_by_its_field_and_without_its_data(
    body: bytes, told: str
) -> None:
    def take(order: Order) -> None:
        raise AssertionError(order)

    def take_all(orders: list[Order]) -> None:
        raise AssertionError(orders)

    handler = bind(take_all if body.startswith(b"[") else take)
    message = Attempt(Delivery("m-1", None, None, body), None)  # type: ignore[arg-type]
    with pytest.raises(UndecodableBody) as caught:
        handler(message)
    lines = Lines()
    lines.events.emit("delivery.dead", topic="t", group="g", error=caught.value)
    (line,) = lines.read()
    assert line["error"].startswith(told)
    assert "4711" not in json.dumps(line)


def test_a_body_is_in_no_line_whatever_it_comes_in() -> None:
    lines = Lines(level="debug")
    for name in ("worker.started", "delivery.dead", "some.event"):
        lines.events.emit(name, body=SECRET, headers={"a": SECRET}, traceback=SECRET)
    assert SECRET not in json.dumps(lines.read())


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{SECRET}@cache:6379/0",
        f"postgresql+psycopg://me:{SECRET}@db/app is down",
        f"redis://:p@ss/{SECRET}@cache",
        f"connecting to 'mysql+pymysql://me:{SECRET}@db'",
        f"postgresql://db/app?user=me&password={SECRET}",
        f"host=db password={SECRET}",
        f"Token: {SECRET}",
    ],
)
def test_a_credential_is_in_no_line(text: str) -> None:
    assert SECRET not in redacted(text)
    lines = Lines(level="debug")
    lines.events.emit("store.unavailable", part="settler", error=text)
    lines.events.emit("worker.started", store=text)
    lines.events.emit("part.failed", error=raised(StoreUnavailable(text, text)))
    lines.events.emit("part.failed", error=WorkerFailed("settler", ValueError(text)))
    written = lines.read()
    assert len(written) == 4
    assert SECRET not in json.dumps(written)


def test_redaction_leaves_the_rest() -> None:
    assert redacted("redis://u:p@host:1/0?a=b") == "redis://***@host:1/0?a=b"
    assert redacted("sqlite:///qframe.db") == "sqlite:///qframe.db"
    for text in (
        "Access denied for user 'q'@'h' (using password: YES)",
        "use mysql+pymysql://user@host/name, or redis://user:password@host",
    ):
        assert redacted(text) == text
    assert redacted("(its password: hunter2)") == "(its password: ***)"


def test_a_drivers_parameters_are_cut_off() -> None:
    lines = Lines()
    error = f"(OperationalError) disk I/O error\n[SQL: INSERT …]\n[parameters: ('{SECRET}',)]"
    lines.events.emit("store.unavailable", error=error)
    (line,) = lines.read()
    assert line["error"] == "(OperationalError) disk I/O error"


def test_on_a_terminal_lines_are_key_value_and_elsewhere_json() -> None:
    for stream, log_format, starts in [
        (io.StringIO(), "auto", r"\{"),
        (Terminal(), "json", r"\{"),
        (io.StringIO(), "console", r"\d\d:"),
        (Terminal(), "auto", r"\d\d:"),
    ]:
        make_logger(log_format, stream).info("worker.started", topic="orders")
        assert re.match(starts, stream.getvalue()), log_format
        assert stream.getvalue().count("\n") == 1


def test_a_line_is_one_write_so_that_processes_can_share_a_stream() -> None:
    class Writes(io.StringIO):
        def __init__(self) -> None:
            super().__init__()
            self.texts: list[str] = []

        def write(self, text: str) -> int:
            self.texts.append(text)
            return super().write(text)

    for log_format in ("json", "console"):
        stream = Writes()
        make_logger(log_format, stream).info("worker.started", topic="orders")
        assert len(stream.texts) == 1
        assert stream.texts[0].endswith("\n")


def test_a_closed_stream_ends_nothing() -> None:
    stream = io.StringIO()
    events = Events()
    end = log_events(events, Settings(), stream)
    stream.close()
    events.emit("worker.started")
    events.emit("delivery.dead", topic="t", group="g")
    end()
    assert not events


def test_slots_in_a_row_are_told_as_one() -> None:
    lines = Lines()
    lines.events.emit("slot.taken", topic="t", group="g", count=6, slots=[0, 1, 2, 5, 7, 8])
    (line,) = lines.read()
    assert (line["count"], line["slots"]) == (6, "0-2,5,7-8")


def test_another_reason_why_the_store_is_away_is_told_at_once() -> None:
    lines = Lines()
    refused, full = (StoreUnavailable("redis://h", why) for why in ("refused", "maxmemory"))
    for error in (refused, refused, full, full, str(full)):
        lines.events.emit("store.unavailable", part="settler", error=error)
    assert [line["error"] for line in lines.read()] == [str(refused), str(full)]
    assert lines.log.tell_overdue() == INTERVAL_S
    lines.clock.advance(int(INTERVAL_S * 1000))
    lines.log.tell_overdue()
    assert [(line["error"], line["times"]) for line in lines.read()] == [
        (str(refused), 1),
        (str(full), 2),
    ]


def test_what_was_held_back_is_told_though_nothing_more_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qframe.telemetry.logs.INTERVAL_S", 0.05)
    stream, events = io.StringIO(), Events()
    end = log_events(events, Settings(), stream)
    for _ in range(3):
        events.emit("delivery.retried", topic="orders", group="billing")
    eventually(lambda: stream.getvalue().count("\n") >= 2)
    end()
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert sum(line.get("times", 1) for line in told) == 3


# On a terminal: short, wrapped between facts, and safe to show.


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
