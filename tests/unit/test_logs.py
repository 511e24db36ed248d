"""Events become lines of the right level, without secrets, and not thousands of them."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import pytest

from qframe.clock import VirtualClock
from qframe.errors import StoreUnavailable, WorkerFailed
from qframe.events import Events
from qframe.settings import Settings
from qframe.telemetry.logs import INTERVAL_S, EventLog, log_events, make_logger
from qframe.telemetry.redaction import redacted

SECRET = "hunter2"


class Lines:
    """An event log on a virtual clock, and the lines that it has written."""

    def __init__(self, level: str = "info") -> None:
        self.stream = io.StringIO()
        self.clock = VirtualClock()
        self.log = EventLog(make_logger("json", self.stream), level=level, clock=self.clock)
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
    [
        ("worker.started", "info"),
        ("slot.taken", "info"),
        ("slot.lost", "warning"),
        ("delivery.retried", "warning"),
        ("delivery.dead", "error"),
        ("part.failed", "error"),
        ("worker.died", "error"),
        ("worker.orphaned", "warning"),
        ("worker.restarted", "info"),
    ],
)
def test_an_event_is_a_line_of_its_level(name: str, level: str) -> None:
    lines = Lines()
    lines.events.emit(name, topic="orders", group="billing", count=3)
    (line,) = lines.read()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": name, "level": level, "topic": "orders", "group": "billing", "count": 3,
    }  # fmt: skip


def test_a_line_begins_with_when_how_important_and_what() -> None:
    lines = Lines()
    lines.events.emit("worker.started", consumers=["orders/billing", "orders/audit"])
    (line,) = lines.read()
    assert list(line) == ["timestamp", "level", "event", "consumers"]
    assert line["consumers"] == "orders/billing, orders/audit"


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
        lines.events.emit("delivery.dead", topic="orders", group=group)
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
    threads = [
        threading.Thread(
            target=lambda: [
                lines.events.emit("delivery.stale", topic="t", group="g", count=1)
                for _ in range(500)
            ]
        )
        for _ in range(4)
    ]
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
    assert line["at"].startswith("test_logs.py:")


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
    lines.events.emit("worker.failed", error=WorkerFailed("settler", ValueError(text)))
    written = lines.read()
    assert len(written) == 4
    assert SECRET not in json.dumps(written)


def test_redaction_leaves_the_rest() -> None:
    assert redacted("redis://u:p@host:1/0?a=b") == "redis://***@host:1/0?a=b"
    assert redacted("sqlite:///qframe.db") == "sqlite:///qframe.db"


def test_a_drivers_parameters_are_cut_off() -> None:
    lines = Lines()
    error = f"(OperationalError) disk I/O error\n[SQL: INSERT …]\n[parameters: ('{SECRET}',)]"
    lines.events.emit("store.unavailable", error=error)
    (line,) = lines.read()
    assert line["error"] == "(OperationalError) disk I/O error"


def test_on_a_terminal_lines_are_key_value_and_elsewhere_json() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, log_format, starts in [
        (io.StringIO(), "auto", "{"),
        (Terminal(), "json", "{"),
        (io.StringIO(), "console", "20"),
        (Terminal(), "auto", "\x1b["),
    ]:
        make_logger(log_format, stream).info("worker.started", topic="orders")
        assert stream.getvalue().startswith(starts), (log_format, stream.getvalue())
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
