"""A message that is explained, and the roster of the one worker that serves its slot."""

from __future__ import annotations

from typing import Any

from qframe.roster import Member, Owner, Roster
from qframe.stores.records import Record

NOW_MS = 1_700_000_000_000
WORKER = "w1"
SERVED = Roster(1, [Member(WORKER, 0, NOW_MS)], {0: Owner(0, WORKER, "1", 0)})


def record(state: str = "todo", **facts: Any) -> Record:
    usual = {
        "topic": "t", "group": "g", "slot": 0, "subject": None, "seq": 1, "id": "m", "key": None,
        "headers": None, "body": b"", "published_at_ms": NOW_MS,
    }  # fmt: skip
    return Record(state=state, **{**usual, **facts})
