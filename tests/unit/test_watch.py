"""Looking again and again: what is shown when the store is away for a while."""

from __future__ import annotations

import json
import signal
import sys
from queue import SimpleQueue
from types import FrameType
from typing import Any

import pytest

from qframe.cli import watch
from qframe.cli.watch import View
from qframe.errors import CoordinatorUnavailable, QFrameError, StoreUnavailable, UnknownGroup


class Looks:
    """Answers, or raises, one after the other, and ends the watch with the last."""

    def __init__(self, *answers: QFrameError | str) -> None:
        self.answers = list(answers)
        self.heard: SimpleQueue[int] = SimpleQueue()

    def __call__(self) -> View:
        answer = self.answers.pop(0)
        if not self.answers:
            self.heard.put(signal.SIGINT)
        if isinstance(answer, QFrameError):
            raise answer
        return View({"seen": answer}, [answer])

    def show(self, *, as_json: bool) -> None:
        watch._show_again(self, as_json=as_json, heard=self.heard)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_S", 0)


@pytest.mark.parametrize("as_json", [True, False])
def test_what_is_away_for_a_while_is_told_and_asked_again(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    Looks(
        "first", StoreUnavailable("redis://me:hunter2@host", "refused"),
        CoordinatorUnavailable("zookeeper://me:hunter2@host", "refused"), "last",
    ).show(as_json=as_json)  # fmt: skip
    said = capsys.readouterr()
    assert "hunter2" not in said.err
    assert [line.split(" cannot")[0] for line in said.err.splitlines()] == [
        "error: store redis://***@host", "error: coordinator zookeeper://***@host",
    ]  # fmt: skip
    if as_json:
        assert [json.loads(line)["seen"] for line in said.out.splitlines()] == ["first", "last"]
    else:
        assert said.out == "first\n\nlast\n\n"


def test_what_has_never_answered_is_refused() -> None:
    with pytest.raises(StoreUnavailable):
        Looks(StoreUnavailable("redis://host", "refused"), "never").show(as_json=True)


def test_what_is_gone_for_good_ends_it() -> None:
    with pytest.raises(UnknownGroup):
        Looks("first", UnknownGroup("orders", "billing"), "never").show(as_json=True)


def struck_before(line: int) -> bool:
    """Watches with a signal before that line; whether it came to it before the third look."""
    ran = looks = 0
    heard: SimpleQueue[int]

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal ran
        if frame.f_code.co_name == "on_signal":
            return None
        if event == "line" and looks < 3:
            ran += 1
            if ran == line:
                signal.raise_signal(signal.SIGINT)
        return trace

    def look() -> View:
        nonlocal looks
        looks += 1
        if looks == 3 and ran < line:
            heard.put(signal.SIGINT)
        return View(looks, [])

    with watch._signals() as heard:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            watch._show_again(look, as_json=True, heard=heard)
        finally:
            sys.settrace(before)
    assert looks <= 3
    return ran >= line


def test_a_signal_before_any_line_of_a_watch_ends_it() -> None:
    """It hung when the signal's handler waited for a lock of whom it had interrupted."""
    line = 1
    while struck_before(line):
        line += 1
    assert line > 10
