"""Forms, acts and jobs of the console, without a store: what is confirmed and what is done once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from starlette.responses import Response

from qframe.admin.timer_search import TimerChanges
from qframe.errors import BadOption, NotAllowed
from qframe.web.acts import ACTS, MOST_IDS, delete_topic, drop_outbox, stop_job
from qframe.web.forms import Form, SentForms
from qframe.web.jobs import Job, Jobs, JobTask
from qframe.web.rendering import short, text
from qframe.web.timer_acts import cancel_timers, edit_timer, move_timers

TASK = JobTask("drop", "drop", "orders", "billing")


def form(**fields: str | list[str]) -> Form:
    return Form({
        name: value if isinstance(value, list) else [value] for name, value in fields.items()
    })  # fmt: skip


def visit(**rights: bool) -> Any:
    """A visit whose verbs note how they are called."""
    made = MagicMock()

    def require(right: str) -> None:
        if not rights.get(right, True):
            raise NotAllowed("ann", right, frozenset())

    made.require = require
    return made


def test_a_job_is_stopped_by_those_who_may_do_what_it_does() -> None:
    job = Job(TASK)
    looking = visit(drop=False)
    looking.desk.jobs.find.return_value = job
    with pytest.raises(NotAllowed):
        stop_job(looking, form(job="1"))
    job.run(lambda tell: (tell(1), (1, ""))[1])  # type: ignore[func-returns-value]
    assert job.state == "done"


def test_a_form_decides_about_five_hundred_at_once_at_most() -> None:
    looking = visit()
    looking.admin.dead_retry.return_value = 1
    ids = [str(number) for number in range(MOST_IDS + 1)]
    ACTS["retry-dead"].do(looking, form(topic="orders", group="billing", id=ids))
    assert looking.admin.dead_retry.call_args.args[2] == ids[:MOST_IDS]


@pytest.mark.parametrize("typed", [{}, {"confirm": "events"}])
def test_a_topic_is_deleted_by_the_name_that_was_typed(typed: dict[str, str]) -> None:
    looking = visit()
    delete_topic(looking, form(topic="events", **typed))
    looking.admin.delete_topic.assert_called_once_with(
        "events", confirm=typed.get("confirm", ""), force=False
    )


@pytest.mark.parametrize(
    ("act", "fields"),
    [
        ("drop-group", {"topic": "t", "group": "g"}),
        ("drop-dead", {"topic": "t", "group": "g", "until": "1"}),
        ("seek", {"topic": "t", "group": "g", "offsets": "0:0"}),
        ("delete-schedule", {"schedule": "s"}),
        ("cancel-timers", {"topic": "t", "seen": "5"}),
    ],
)
@pytest.mark.parametrize("typed", [{}, {"confirm": "another"}])
def test_what_is_for_good_is_confirmed_by_its_name(
    act: str, fields: dict[str, str], typed: dict[str, str]
) -> None:
    looking = visit()
    with pytest.raises(BadOption, match="confirm"):
        ACTS[act].do(looking, form(**fields, **typed))
    looking.desk.jobs.start.assert_not_called()


def test_timers_are_counted_without_a_confirmation_and_no_later_ones_are_changed() -> None:
    looking = visit()
    # The timers are in a database; without a topic it is the clock of Redis.
    looking.desk.app.store.now_ms = lambda topic=None: 4 if topic is None else 9
    looking.admin.cancel_timers.return_value = looking.admin.move_timers.return_value = (
        TimerChanges()
    )
    for fields, is_dry, until_ms in (({}, True, 9), ({"seen": "5", "confirm": "t"}, False, 5)):
        for act, verb in ((cancel_timers, "cancel_timers"), (move_timers, "move_timers")):
            act(looking, form(topic="t", shift="1h", **fields))
            looking.desk.jobs.start.call_args.args[1](lambda _: None)
            given = getattr(looking.admin, verb).call_args.kwargs
            assert (given["dry_run"], given["published_until"]) == (is_dry, until_ms)


def test_timers_are_changed_by_all_fields_by_which_they_were_counted() -> None:
    looking = visit()
    fields = {
        "topic": "t", "key": "k", "state": "waiting", "tag": "red", "shift": "1h", "seen": "5",
        "since": "2026-01-01T00:00", "until": "2027-01-01T00:00",
    }  # fmt: skip
    move_timers(looking, form(**fields))
    assert looking.desk.jobs.start.call_args.args[0].form == fields


def test_a_body_is_edited_by_those_who_may_see_it() -> None:
    looking = visit(body=False)
    with pytest.raises(NotAllowed):
        edit_timer(looking, form(topic="t", key="k", body="1"))
    looking.admin.edit_timer.assert_not_called()


def test_of_what_is_dropped_from_an_outbox_it_is_told_what_may_be_published() -> None:
    looking = visit()
    looking.admin.outbox_waiting.return_value = [
        SimpleNamespace(row=SimpleNamespace(sent_at=sent_at)) for sent_at in (None, None, 5)
    ]
    looking.admin.outbox_drop.return_value = 3
    told = drop_outbox(looking, form(outbox="0", id=["a", "b", "c"]))
    assert "3 messages" in told
    assert "1 of them may be in their topics already" in told


def test_a_form_is_done_once_for_each_act_also_where_it_comes_twice_at_once() -> None:
    sent, done, begun, go_on = SentForms(), [], threading.Event(), threading.Event()

    def make() -> Response:
        done.append("")
        begun.set()
        go_on.wait(10)
        return Response()

    one = form(once="1", topic="t")
    threads = [threading.Thread(target=sent.reply, args=("skip", one, make)) for _ in range(2)]
    threads[0].start()
    begun.wait(10)
    threads[1].start()
    threads[1].join(0.01)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(done) == 1
    sent.reply("unblock", one, make)
    assert len(done) == 2


def test_forms_and_jobs_are_kept_up_to_a_number() -> None:
    sent, jobs = SentForms(), Jobs(lambda: None)
    for number in range(501):
        sent.reply("skip", form(once=str(number)), Response)
    assert len(sent._sent) == 500
    first = jobs.start(TASK, lambda _: (0, ""))
    for _ in range(100):
        jobs.start(TASK, lambda _: (0, ""))
    assert jobs.find(first.number) is None


def test_pages_are_looked_at_anew_once_a_job_has_ended_and_not_before() -> None:
    go_on, looked, states = threading.Event(), threading.Event(), []

    def look() -> None:
        states.append(job.state)
        looked.set()

    job = Jobs(look).start(TASK, lambda _: (int(go_on.wait(60)), ""))
    go_on.set()
    assert looked.wait(60)
    assert states == ["done"]


def test_a_job_that_is_stopped_counts_its_last_step() -> None:
    job = Job(TASK)

    def act(tell: Callable[[int], object]) -> tuple[int, str]:
        job.stop()
        tell(500)
        return 1000, ""

    job.run(act)
    assert (job.state, job.done) == ("stopped", 500)


def test_a_job_ends_whatever_happens_in_it() -> None:
    def fail(_tell: object) -> tuple[int, str]:
        raise RuntimeError("secret")

    job = Job(TASK)
    with pytest.raises(RuntimeError):
        job.run(fail)
    assert (job.state, "secret" in job.error) == ("failed", False)


def test_texts_from_outside_are_escaped_and_cut_in_titles_too() -> None:
    assert text("<b>") == "<bdi>&lt;b&gt;</bdi>"
    assert short("<b>") == "<bdi>&lt;b&gt;</bdi>"
    assert len(short("x" * 10**6)) < 3000
    assert "\u202e" not in text("a\u202eb")
