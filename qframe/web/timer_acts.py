"""Acts on timers: one by one, or all that were found, which are counted first."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from qframe.admin.dead import Progress
from qframe.admin.timer_search import TimerChanges, TimerChoice
from qframe.codec import own_headers, tags_of
from qframe.errors import BadOption
from qframe.outcomes import Moved
from qframe.web.desk import Visit
from qframe.web.forms import Form
from qframe.web.jobs import Job, JobTask
from qframe.web.rendering import count
from qframe.web.times import moment_of


def move_timer(visit: Visit, form: Form) -> str:
    """Makes a timer due at another time."""
    topic, key = form.exact("topic"), form.exact("key")
    at = moment_of("at", form.exact("at"))
    return _moved(visit.admin.move_timer(topic, key, at=at), key, "is due at another time now")


def cancel_timer(visit: Visit, form: Form) -> str:
    """Removes a timer for every group."""
    topic, key = form.exact("topic"), form.exact("key")
    return _moved(visit.admin.cancel_timer(topic, key), key, "was cancelled")


def edit_timer(visit: Visit, form: Form) -> str:
    """Gives a timer another body, and another time if one is given; its headers and tags stay."""
    topic, key = form.exact("topic"), form.exact("key")
    visit.require("body")
    at, text = form.maybe("at"), form.exact("body")
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadOption("body", text, f"it is not JSON ({error})", "quote texts") from None
    headers = next((each.headers for each in visit.admin.timer(topic, key)), None)
    moved = visit.admin.edit_timer(
        topic, key, body=msgspec.Raw(text.encode()), headers=own_headers(headers),
        tags=tags_of(headers), at=None if at is None else moment_of("at", at),
    )  # fmt: skip
    return _moved(moved, key, "was changed")


def move_timers(visit: Visit, form: Form) -> Job:
    """Makes all timers that were found due at another time, or counts them."""
    at, shift = form.maybe("at"), form.maybe("shift")
    moment = None if at is None else moment_of("at", at)
    topic, which, is_dry = _choice(visit, form)

    def change(tell: Callable[[TimerChanges], object]) -> TimerChanges:
        return visit.admin.move_timers(
            topic, at=moment, shift=shift, dry_run=is_dry, on_progress=tell, **which
        )

    task = JobTask("move", "retry", topic, None, is_dry=is_dry)
    return _change_timers(visit, form, task, which, change)


def cancel_timers(visit: Visit, form: Form) -> Job:
    """Removes all timers that were found, or counts them."""
    topic, which, is_dry = _choice(visit, form)
    if not is_dry:
        form.confirm(topic)

    def change(tell: Callable[[TimerChanges], object]) -> TimerChanges:
        return visit.admin.cancel_timers(topic, dry_run=is_dry, on_progress=tell, **which)

    task = JobTask("cancel", "drop", topic, None, is_dry=is_dry)
    return _change_timers(visit, form, task, which, change)


def _choice(visit: Visit, form: Form) -> tuple[str, TimerChoice, bool]:
    """The topic and timers that a form means, and whether they are only counted.

    It changes what it has counted, and nothing that was published since.
    """
    topic = form.exact("topic")
    visit.admin.topic(topic)  # of a name that is wrong this page tells, and not the job's
    store = visit.desk.app.store
    since, until, seen_ms = form.maybe("since"), form.maybe("until"), form.number("seen")
    which = TimerChoice(
        since=None if since is None else moment_of("since", since),
        until=None if until is None else moment_of("until", until),
        key=form.key(), state=form.maybe("state"), tag=form.maybe("tag"),
        published_until=store.now_ms(store.topic(topic)) if seen_ms is None else seen_ms,
    )  # fmt: skip
    return topic, which, seen_ms is None


def _change_timers(
    visit: Visit,
    form: Form,
    task: JobTask,
    which: TimerChoice,
    change: Callable[[Callable[[TimerChanges], object]], TimerChanges],
) -> Job:
    """A job that counts timers, and whose page leads to one that changes those; or that one."""
    names = ("topic", "since", "until", "key", "state", "tag", "at", "shift")
    fields = {name: form.exact(name) for name in names if form.maybe(name) is not None}
    fields["seen"] = str(which["published_until"])

    def act(tell: Progress) -> tuple[int, str]:
        counts = change(lambda so_far: tell(so_far.done))
        return counts.done, _left_alone(counts)

    task = task._replace(total=form.number("total") or 0, form=fields)
    return visit.desk.jobs.start(task, act, by=visit.visitor.name)


def _left_alone(counts: TimerChanges) -> str:
    parts = []
    if counts.doing:
        parts.append(f"{count(counts.doing)} are in hand of a handler")
    if counts.gone:
        parts.append(f"{count(counts.gone)} were handed out or changed since they were seen")
    return f"{' and '.join(parts)}: these were left alone." if parts else ""


def _moved(moved: Moved, key: str, text: str) -> str:
    if moved is Moved.DONE:
        return f"Timer {key} {text}."
    why = "a handler has it in hand" if moved is Moved.DOING else "it is not there any more"
    raise BadOption("key", key, why, "look again: nothing was changed")
