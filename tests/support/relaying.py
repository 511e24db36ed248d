"""A worker with nothing but a relay that kills itself at a step.

The steps: read (and not marked yet), marked, published (and not deleted), deleted (and not
committed). It dies the COUNT-th time that it comes by there, or sends itself another signal; with
the step "none" it drains the outbox and ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, cast

from business import engine_of

from qframe import Outbox, QFrame
from qframe.outbox.relay import Relay
from qframe.outbox.rows import OutboxStatements
from qframe.stores.sql.store import SqlStore

PLACES: dict[str, tuple[type, str]] = {
    "read": (OutboxStatements, "read"),
    "marked": (Relay, "_next"),
    "published": (Relay, "_bring"),
    "deleted": (OutboxStatements, "delete"),
}


def die_after(step: str, count: int, how: int, app: QFrame) -> None:
    """Plants the end of this process behind a step that had something to do.

    Not in the midst of a write to the message store: a process that is frozen then keeps SQLite's
    only write lock.
    """
    owner, name = PLACES[step]
    original: Callable[..., Any] = getattr(owner, name)
    left = [count]

    def planted(self: Any, *args: Any) -> Any:
        answer = original(self, *args)
        if answer or step in ("published", "deleted"):
            left[0] -= 1
            if not left[0]:
                with cast("SqlStore", app.store)._database.backend.writing():
                    os.kill(os.getpid(), how)
                    threading.Event().wait(1)  # a thread may go on for a moment
        return answer

    setattr(owner, name, planted)


def work(business: str, store: str, step: str, count: str, how: str = "9") -> None:
    """Relays."""
    with QFrame(store=store, session_timeout=1) as app:
        if step != "none":
            die_after(step, int(count), int(how), app)
        app.relay(Outbox(engine_of(business)))
        app.run(burst=step == "none")
