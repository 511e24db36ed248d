"""The workers of `benchmarks.processes` serve this: one topic, with a handler that does nothing."""

from __future__ import annotations

import os

from benchmarks.endless import ENDLESS, GROUP, STORE, TOPIC, Counts, Endless
from benchmarks.workload import THREADS
from qframe import Message, QFrame

app = QFrame(os.environ[STORE], log_level="warning")


@app.consumer(TOPIC, group=GROUP, threads=THREADS)
def handle(message: Message) -> None:
    """Looks into the message, which decodes its body."""
    assert message.body


app.events.listen(Counts().listen)
if ENDLESS in os.environ:
    app.parts.opened.store = Endless(app.store)  # type: ignore[assignment]
