"""The attempts of a message, as `qframe explain` prints them: docs/explain.md shows just that."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from qframe.admin.explain.cause import Explanation
from qframe.admin.explain.past import settled_by
from qframe.cli.attempts import say_attempts
from qframe.cli.explain import as_json_of, say_explanation
from qframe.outcomes import Verdict
from qframe.stores.history import ENTRIES, LOST
from qframe.stores.records import HistoryEntry

PAGE = Path(__file__).parent.parent.parent / "docs" / "explain.md"
FIRST, SECOND = "web1-512-4f0c1e2b9d11", "web2-811-4f0c1e77aa02"


def ms(time: str) -> int:
    return round(datetime.fromisoformat(f"2026-01-31T{time}+00:00").timestamp() * 1000)


def ended(attempt: int, verdict: str, at: str, took_ms: int, worker: str) -> HistoryEntry:
    failed = verdict in (Verdict.RETRY, Verdict.DEAD)
    return HistoryEntry(
        group="billing", slot=3, id="order-77", attempt=attempt, verdict=verdict, ended_ms=ms(at),
        began_ms=ms(at) - took_ms, worker=worker, error="TimeoutError: bank" if failed else None,
        place="shop/bill.py:17 in bill" if failed else None,
    )  # fmt: skip


def explanation(*history: HistoryEntry, group: str | None = "billing") -> Explanation:
    return Explanation(
        topic="orders", group=group, state="settled", causes=(settled_by(history[-1]),),
        id="order-77", history=history,
    )  # fmt: skip


THREE = explanation(
    ended(1, Verdict.RETRY, "10:00:05.250", 1200, FIRST),
    ended(2, LOST, "10:02:08", 60_000, FIRST),
    ended(3, Verdict.ACK, "10:05:12.290", 40, SECOND),
)


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    say_explanation(THREE)
    printed = capsys.readouterr().out
    assert f"$ qframe explain order-77\n{printed}```" in PAGE.read_text(encoding="utf-8")


def test_programs_read_all_of_it() -> None:
    first, *_ = as_json_of(THREE)["history"]
    assert first == {
        "group": "billing", "slot": 3, "attempt": 1, "worker": FIRST, "verdict": "retry",
        "began": "2026-01-31T10:00:04.050Z", "ended": "2026-01-31T10:00:05.250Z",
        "error": "TimeoutError: bank", "place": "shop/bill.py:17 in bill",
    }  # fmt: skip


def test_no_line_is_longer_than_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    worker = f"{'long' * 10}-4194304-4f0c1e2b9d11"
    verdicts = [*Verdict, LOST] * 4
    say_attempts(
        explanation(*[ended(n + 2, each, "10:00:00", 5, worker) for n, each in enumerate(verdicts)],
                    group=None)
    )  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  how its attempts before these ended is not kept any more"
    assert len(verdicts) == ENTRIES
    assert max(map(len, lines)) <= 80
    assert "of group billing" in " ".join(line.strip() for line in lines)


def test_an_error_that_moves_the_cursor_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    one = HistoryEntry(id="m", attempt=1, verdict="retry", ended_ms=0, error="\x1b[2Jgone" * 30)
    say_attempts(explanation(one))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 80
