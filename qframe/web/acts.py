"""Acts: what a form of the console does. Each is one verb of `app.admin`, which checks the right.

An act takes the form's fields and returns a sentence for the next page, or the job that it has
started. The table names the right of each once more: a form is shown only to who may send it, and
done for nobody else; `app.admin` refuses it in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from qframe.admin.dead import Progress
from qframe.admin.rights import Right
from qframe.digits import whole_number
from qframe.errors import BadOption
from qframe.web.desk import Visit
from qframe.web.forms import Form
from qframe.web.jobs import Job, JobTask
from qframe.web.problems import counted
from qframe.web.rendering import count
from qframe.web.timer_acts import (
    cancel_timer,
    cancel_timers,
    edit_timer,
    move_timer,
    move_timers,
)
from qframe.web.times import moment_of

MOST_IDS: Final = 500


class Act(NamedTuple):
    """Something that a form does.

    Attributes:
        right: the right that it needs.
        do: does it; returns a sentence, or the job that it has started.
    """

    right: Right
    do: Callable[[Visit, Form], str | Job]


def pause(visit: Visit, form: Form) -> str:
    """Pauses a group, or holds a key."""
    topic, group, key = form.exact("topic"), form.exact("group"), form.key()
    visit.admin.pause(topic, group, key=key, why=form.maybe("why"))
    what = f"{topic}/{group}" if key is None else f"Key {key} of {topic}/{group}"
    return f"{what} is paused: its workers stop within 2 s."


def resume(visit: Visit, form: Form) -> str:
    """Ends a pause."""
    topic, group, key = form.exact("topic"), form.exact("group"), form.key()
    visit.admin.resume(topic, group, key=key)
    return f"{f'{topic}/{group}' if key is None else f'Key {key}'} goes on."


def tune(visit: Visit, form: Form) -> str:
    """Changes a group's running consumers; a blank field restores the value in the code."""
    topic, group = form.exact("topic"), form.exact("group")
    visit.admin.tune(
        topic, group, threads=form.number("threads") or "reset",
        rate=form.maybe("rate") or "reset", in_flight=form.number("in_flight") or "reset",
    )  # fmt: skip
    return f"{topic}/{group} is tuned: its workers follow within 2 s."


def seek(visit: Visit, form: Form) -> str:
    """Moves a group to the offsets that were shown."""
    topic, group = form.exact("topic"), form.exact("group")
    form.confirm(group)
    moved = visit.admin.seek(topic, group, offset=_offsets(form.exact("offsets")))
    return f"{topic}/{group} was moved in {counted(len(moved), 'slot')}."


def ask_stacks(visit: Visit, form: Form) -> str:
    """Asks a group's workers where their handlers are in their code."""
    topic, group = form.exact("topic"), form.exact("group")
    visit.admin.ask_stacks(topic, group)
    return f"The workers of {topic}/{group} tell within 2 s, and for a minute."


def skip(visit: Visit, form: Form) -> str:
    """Writes the message that blocks a key among the dead letters."""
    topic, group, key = form.exact("topic"), form.exact("group"), form.exact("key")
    record = visit.admin.skip(
        topic, group, key, message_id=form.maybe("id"), why=form.maybe("why"),
        force=form.maybe("force") is not None,
    )  # fmt: skip
    return f"Message {record.id} was skipped; it is among the dead letters."


def unblock(visit: Visit, form: Form) -> str:
    """Makes a key's waiting retries due now."""
    topic, group, key = form.exact("topic"), form.exact("group"), form.exact("key")
    done = visit.admin.unblock(topic, group, key)
    if not done:
        return f"Nothing of key {key} waits: its first message is due, or in a worker's hands."
    return f"{counted(done, 'message')} of key {key} {'is' if done == 1 else 'are'} due now."


def retry_dead(visit: Visit, form: Form) -> str | Job:
    """Makes dead letters due again: those chosen, or all that the page has seen."""
    return _decide(visit, form, "retry")


def drop_dead(visit: Visit, form: Form) -> str | Job:
    """Removes dead letters for good: those chosen, or all that the page has seen."""
    if not form.all("id") and form.maybe("until"):
        form.confirm(form.exact("group"))
    return _decide(visit, form, "drop")


def _decide(visit: Visit, form: Form, verb: Right) -> str | Job:
    topic, group = form.exact("topic"), form.exact("group")
    admin = visit.admin
    decide = admin.dead_retry if verb == "retry" else admin.dead_drop
    until, cause, asked = form.maybe("until"), form.maybe("cause"), form.maybe("since")
    if until is None or form.all("id"):
        ids = _chosen(form)
        if not (done := decide(topic, group, ids)):
            what = "it is no dead letter" if len(ids) == 1 else "none of them is a dead letter"
            raise BadOption(
                "id", ", ".join(ids[:3]), f"{what} of {topic}/{group} any more",
                "look again: somebody may have retried or dropped it",
            )  # fmt: skip
        were = "was" if done == 1 else "were"
        how = "retried" if verb == "retry" else "dropped"
        return f"{counted(done, 'dead letter')} {were} {how}."
    since = None if asked is None else moment_of("since", asked)
    admin.topic(topic)  # of a name that is wrong this page tells, and not the job's

    def act(tell: Progress) -> tuple[int, str]:
        done = decide(topic, group, "all", since=since, until=until, cause=cause, on_progress=tell)
        return done, ""

    task = JobTask(verb, verb, topic, group, form.number("total") or 0)
    return visit.desk.jobs.start(task, act, by=visit.visitor.name)


def stop_job(visit: Visit, form: Form) -> str:
    """Ends a job after its next step."""
    number = form.exact("job")
    job = visit.desk.jobs.find(number)
    if job is None:
        raise BadOption("job", number, "this console knows none of that number", "look again")
    visit.require(job.task.right)
    job.stop()
    return "It stops after its next step."


def drop_group(visit: Visit, form: Form) -> str:
    """Deletes a group and all that it holds."""
    topic, group = form.exact("topic"), form.exact("group")
    form.confirm(group)
    visit.admin.drop_group(topic, group, force=form.maybe("force") is not None)
    return f"Group {group} of topic {topic} was dropped."


def delete_topic(visit: Visit, form: Form) -> str:
    """Deletes a topic and all that it holds."""
    topic = form.exact("topic")
    visit.admin.delete_topic(
        topic, confirm=form.maybe("confirm") or "", force=form.maybe("force") is not None
    )
    return f"Topic {topic} was deleted."


def retry_outbox(visit: Visit, form: Form) -> str:
    """Has relays try what a topic refuses again."""
    outbox = visit.desk.outbox(form.number("outbox"))
    visit.admin.outbox_retry(outbox)
    return f"The relays of {outbox.prefix} try again within 1 s."


def drop_outbox(visit: Visit, form: Form) -> str:
    """Removes the chosen messages from an outbox for good."""
    outbox = visit.desk.outbox(form.number("outbox"))
    chosen = visit.admin.outbox_waiting(outbox, ids=_chosen(form))
    if not chosen:
        raise BadOption("id", None, "none that was chosen waits any more", "look again")
    done = visit.admin.outbox_drop(outbox, chosen)
    tried = sum(each.row.sent_at is not None for each in chosen)
    maybe = f" {count(tried)} of them may be in their topics already." if tried else ""
    were = "was" if done == 1 else "were"
    return f"{counted(done, 'message')} of {outbox.prefix} {were} dropped.{maybe}"


def pause_schedule(visit: Visit, form: Form) -> str:
    """Lets no tick of a schedule fire."""
    return f"Schedule {visit.admin.pause_schedule(form.exact('schedule')).name} is paused."


def resume_schedule(visit: Visit, form: Form) -> str:
    """Lets ticks of a schedule fire again."""
    return f"Schedule {visit.admin.resume_schedule(form.exact('schedule')).name} goes on."


def run_schedule(visit: Visit, form: Form) -> str:
    """Publishes a schedule's message now."""
    name = form.exact("schedule")
    published = visit.admin.run_schedule(name)
    return f"Schedule {name} has published message {published.id}; its ticks stay as they are."


def delete_schedule(visit: Visit, form: Form) -> str:
    """Removes a schedule."""
    name = form.exact("schedule")
    form.confirm(name)
    visit.admin.delete_schedule(name)
    return f"Schedule {name} is gone; its messages stay."


def _chosen(form: Form) -> list[str]:
    """The ids that were ticked.

    Raises:
        BadOption: if none was.
    """
    if not (ids := form.all("id")[:MOST_IDS]):
        raise BadOption("id", None, "none was chosen", "tick those that are meant")
    return ids


def _offsets(text: str) -> dict[int, int]:
    try:
        pairs = [each.split(":") for each in text.split(",")]
        return {whole_number(slot): whole_number(offset) for slot, offset in pairs}
    except ValueError:
        raise BadOption("offsets", text, "it is no list of slots", "ask for the preview") from None


ACTS: Final[Mapping[str, Act]] = {
    "pause": Act("pause", pause),
    "resume": Act("pause", resume),
    "tune": Act("tune", tune),
    "seek": Act("seek", seek),
    "ask-stacks": Act("tune", ask_stacks),
    "skip": Act("retry", skip),
    "unblock": Act("retry", unblock),
    "retry-dead": Act("retry", retry_dead),
    "drop-dead": Act("drop", drop_dead),
    "stop-job": Act("retry", stop_job),
    "drop-group": Act("drop", drop_group),
    "delete-topic": Act("drop", delete_topic),
    "move-timer": Act("retry", move_timer),
    "cancel-timer": Act("drop", cancel_timer),
    "edit-timer": Act("retry", edit_timer),
    "move-timers": Act("retry", move_timers),
    "cancel-timers": Act("drop", cancel_timers),
    "retry-outbox": Act("retry", retry_outbox),
    "drop-outbox": Act("drop", drop_outbox),
    "pause-schedule": Act("pause", pause_schedule),
    "resume-schedule": Act("pause", resume_schedule),
    "run-schedule": Act("retry", run_schedule),
    "delete-schedule": Act("drop", delete_schedule),
}
