"""`explain` beside real workers: who has a message now, and who had it before."""

from __future__ import annotations

import threading

import pytest
from apps import running
from eventually import eventually

from qframe import Backoff, Message, QFrame, Topic
from qframe.admin.explain.cause import Explanation

SOON = Backoff(first=0.01, cap=0.01)


def explained(app: QFrame) -> Explanation:
    [one] = app.admin.explain(message_id="m")
    return one


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["stream", "ordered"])
def test_it_names_the_worker_that_handles_a_message_since_when_and_the_attempts_before(
    each_app: QFrame, kind: str
) -> None:
    topic: Topic = Topic("orders", kind, slots=2, history="1d")  # type: ignore[call-overload]
    begun, gate = threading.Event(), threading.Event()

    @each_app.consumer(topic, "billing", backoff=SOON, max_attempts=5)
    def bill(message: Message) -> None:
        if message.attempt == 1:
            raise TimeoutError("bank")
        begun.set()
        assert gate.wait(60)

    published_ms = each_app.store.now_ms()
    each_app.publish(topic, 1, key="ann", id="m")
    with running(each_app, gate):
        assert begun.wait(60)
        # What its consumer has for options is in its worker's first report, a second later.
        eventually(lambda: explained(each_app).cause.facts["max_attempts"] == 5)
        one, [worker] = explained(each_app), each_app.admin.workers()
        assert (one.state, one.cause.name) == ("doing", "running")
        facts = one.cause.facts
        assert (facts["worker"], facts["attempt"]) == (worker.id, 2)
        [failed] = one.history or ()
        assert (failed.attempt, failed.verdict, failed.worker) == (1, "retry", worker.id)
        assert failed.error == "TimeoutError: bank"
        assert (failed.place or "").endswith("in bill")
        assert failed.began_ms is not None
        assert published_ms <= failed.began_ms <= failed.ended_ms <= facts["since_ms"]
        gate.set()
        eventually(lambda: explained(each_app).state == "settled")
    one = explained(each_app)
    first, last = one.history or ()
    assert (first, last.attempt, last.verdict, last.worker) == (failed, 2, "ack", worker.id)
    assert one.cause.facts == {"at_ms": last.ended_ms, "worker": worker.id, "attempt": 2}
