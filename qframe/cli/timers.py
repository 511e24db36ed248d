"""`qframe timers`: looked up, set, edited, moved, cancelled and imported."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import msgspec
from click.exceptions import Exit

from qframe.admin.admin import Admin
from qframe.admin.search import LOOK
from qframe.admin.timer_search import TimerChanges, TimerChoice
from qframe.admin.timer_status import TimerStatus
from qframe.cli.asking import ask
from qframe.cli.attempts import entry_as_json
from qframe.cli.commands import BadCommand, check_beside, check_one_of
from qframe.cli.flags import AsJson, By, Limit, NeverAsked, TopicName, Yes
from qframe.cli.output import counted, say, say_error, say_json, table
from qframe.cli.records import as_json as record_as_json
from qframe.cli.records import body_text, second
from qframe.cli.search import header_of
from qframe.cli.steps import Steps
from qframe.cli.target import Target, targeted
from qframe.cli.timer_choice import Header, OfId, Since, State, Tag, Until, chosen, is_one
from qframe.cli.timer_import import import_timers
from qframe.cli.times import duration_of, moment_of
from qframe.clock import moment
from qframe.errors import BadBody
from qframe.outcomes import Moved, Outcome
from qframe.retry import checked_times
from qframe.verbs.parameters import argument, option

Key = Annotated[str, argument("KEY", "The timer's key, or its subject.")]
SomeKey = Annotated[str | None, argument("KEY", "The timer's key; or --all with what they have.")]
All = Annotated[
    bool, option("--all", help="All that fit; those that are set meanwhile are left alone.")
]
DryRun = Annotated[bool, option("--dry-run", help="With --all: only count them.")]
OfKey = Annotated[str | None, option("--key", metavar="KEY", help="Its key.")]
At = Annotated[str | None, option(metavar="TIME", help="Due then.")]
Delay = Annotated[str | None, option(metavar="DURATION", help="Due after this time.")]
Body = Annotated[str | None, option(metavar="JSON", help="Its new body.")]


@targeted
def list_timers(
    target: Target,
    topic: TopicName,
    key: OfKey = None,
    message_id: OfId = None,
    state: State = None,
    tag: Tag = None,
    header: Header = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
    look: Annotated[
        int, option(least=1, metavar="N", help="How many timers to look at, at most.")
    ] = LOOK,
    place: Annotated[
        str | None, option("--from", metavar="PLACE", help="Where a list has ended.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Lists timers, the next one first, overdue ones included."""
    which: TimerChoice = {"key": key, **chosen(message_id, state, tag, header, since, until)}
    with target.opened() as app:
        found = app.admin.timers(topic, limit=limit, look=look, place=place, **which)
    if as_json:
        records = [record_as_json(record) for record in found.records]
        say_json({"found": records, "looked": found.looked, "place": found.place})
        return
    if found.records:
        table(
            ("due", "group", "state", "key", "id", "attempts", "body"),
            [
                (
                    second(each.shown_due_ms), each.group, each.state, each.key or each.subject,
                    each.id, each.attempts, body_text(each),
                )
                for each in found.records
            ],
            cut=True,
        )  # fmt: skip
    else:
        say("no timers found" if found.is_all else "no timers found so far: not all were looked at")
    if found.has_more:
        say(f"these are the first {len(found.records)}; look at more with --limit")
    if found.place is not None:
        say(f"looked at {counted(found.looked, 'timer')}; go on: --from {found.place}")


@targeted
def show(
    target: Target,
    topic: TopicName,
    key: Annotated[str | None, argument("KEY", "The timer's key; or give --id.")] = None,
    message_id: OfId = None,
    as_json: AsJson = False,
) -> None:
    """Shows how a timer stands with each group, or how it ended."""
    if key is None:
        check_one_of("timers show", {"KEY": key, "--id": message_id}, "a timer")
    with target.opened() as app:
        found = app.timers.status(topic, key, id=message_id)
    if as_json:
        say_json([_facts(each) for each in found])
    elif not found:
        say("nothing is known of it; what has ended is known if its topic has a history")
    else:
        table(
            ("group", "state", "due", "ended", "attempts", "by", "id", "error"),
            [
                (
                    each.group, each.state, second(each.due_ms), second(each.ended_ms),
                    each.attempts, each.by, each.id, each.error,
                )
                for each in found
            ],
            cut=True,
        )  # fmt: skip
    unknown = next((each for each in found if each.place is not None), None)
    if unknown is not None and not as_json:
        say(
            f"looked at {counted(unknown.looked, 'timer')} one by one; give its KEY, or go on: "
            f"qframe timers list {topic} --id {quote(unknown.id)} --from {unknown.place}"
        )


@targeted
def add(
    target: Target,
    topic: TopicName,
    body: Annotated[str, argument("BODY", "JSON.")],
    key: OfKey = None,
    at: At = None,
    delay: Delay = None,
    message_id: OfId = None,
    header: Header = None,
    tag: Annotated[list[str] | None, option(metavar="TAG", help="A tag.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sets a timer.

    The topic's kind says what becomes of one that the key has already.
    """
    check_one_of("timers add", {"--at": at, "--delay": delay}, "a time")
    headers = {name: value or "" for name, value in map(header_of, header or ())}
    delay_ms, due_ms = checked_times(duration_of(delay), moment_of(at, "at"))
    with target.opened() as app:
        published = app.timers.schedule(
            topic, _json_of(body), key=key, id=message_id, headers=headers or None,
            tags=tag or None, at=moment_of(at, "at"), delay=duration_of(delay),
        )  # fmt: skip
        if delay_ms is not None:
            due_ms = app.store.now_ms(app.store.topic(topic)) + delay_ms
    if as_json:
        say_json({"topic": topic, "id": published.id, "outcome": str(published.outcome)})
        return
    is_due_then = published.outcome in (Outcome.STORED, Outcome.REPLACED)
    due = f", due {second(due_ms)}" if is_due_then else ""
    say(f"{published.outcome} {published.id} in {topic}{due}")


@targeted
def edit(
    target: Target,
    topic: TopicName,
    key: Key,
    body: Body = None,
    at: At = None,
    delay: Delay = None,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Replaces a timer's time, or its body, or both in one step."""
    if body is None and at is None and delay is None:
        raise BadCommand(
            "command", "timers edit", "it needs a change", "give --body, --at or --delay"
        )
    check_one_of("timers edit", {"--at": at, "--delay": delay})
    content = msgspec.UNSET if body is None else _json_of(body)
    with target.acting(by) as (_, admin):
        moved = admin.edit_timer(
            topic, key, at=moment_of(at, "at"), delay=duration_of(delay), body=content
        )
    _say_moved(topic, key, moved, "edited", as_json=as_json)


@targeted
def move(
    target: Target,
    topic: TopicName,
    key: SomeKey = None,
    at: At = None,
    delay: Delay = None,
    shift: Annotated[
        str | None, option(metavar="DURATION", help="Later by this; -1h: earlier.")
    ] = None,
    everything: All = False,
    message_id: OfId = None,
    state: State = None,
    tag: Tag = None,
    header: Header = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    yes: NeverAsked = False,  # noqa: ARG001
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Makes a timer due at another time, or all that fit.

    With --all it works in steps, and can be stopped by Ctrl-C.
    """
    which = chosen(message_id, state, tag, header, since, until)
    if is_one("timers move", key, everything, which, dry_run=dry_run):
        check_one_of("timers move", {"--at": at, "--delay": delay, "--shift": shift}, "one time")
    else:
        check_beside("timers move", "--all", {"--delay": delay}, "give --at or --shift")
        check_one_of("timers move", {"--at": at, "--shift": shift}, "one time")
    with target.acting(by) as (_, admin):
        if key is not None:
            _say_moved(topic, key, _moved_one(admin, topic, key, at, delay, shift), "moved",
                       as_json=as_json)  # fmt: skip
            return
        with _steps(topic, "moved", dry_run=dry_run) as steps:
            changes = admin.move_timers(
                topic, at=moment_of(at, "at"), shift=duration_of(shift), dry_run=dry_run,
                on_progress=lambda so_far: steps.tell(so_far.done), **which,
            )  # fmt: skip
    _say_changes(topic, changes, steps, dry_run=dry_run, as_json=as_json)


def _moved_one(
    admin: Admin, topic: str, key: str, at: str | None, delay: str | None, shift: str | None
) -> Moved:
    """Moves a timer to a time, or by one."""
    if shift is None:
        return admin.edit_timer(topic, key, at=moment_of(at, "at"), delay=duration_of(delay))
    found = admin.timer(topic, key)
    if not found:
        return Moved.ABSENT
    which: TimerChoice = {"key": key} if found[0].key is not None else {"id": found[0].id}
    changes = admin.move_timers(topic, shift=duration_of(shift), **which)
    if changes.done:
        return Moved.DONE
    return Moved.DOING if changes.doing else Moved.ABSENT


@targeted
def cancel(
    target: Target,
    topic: TopicName,
    key: SomeKey = None,
    everything: All = False,
    message_id: OfId = None,
    state: State = None,
    tag: Tag = None,
    header: Header = None,
    since: Since = None,
    until: Until = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Removes a timer, or all that fit, for every group.

    With --all it asks first, unless --yes, works in steps, and can be stopped by Ctrl-C.
    """
    which = chosen(message_id, state, tag, header, since, until)
    is_one("timers cancel", key, everything, which, dry_run=dry_run)
    with target.acting(by) as (_, admin):
        if key is not None:
            moved = admin.cancel_timer(topic, key)
            _say_moved(topic, key, moved, "cancelled", as_json=as_json)
            return
        if not yes and not dry_run:
            count = admin.cancel_timers(topic, dry_run=True, **which).done
            ask(f"Cancel {counted(count, 'timer')} of {topic} for good?")
        with _steps(topic, "cancelled", dry_run=dry_run) as steps:
            changes = admin.cancel_timers(
                topic, dry_run=dry_run, on_progress=lambda so_far: steps.tell(so_far.done), **which
            )
    _say_changes(topic, changes, steps, dry_run=dry_run, as_json=as_json)


@targeted
def import_(
    target: Target,
    topic: TopicName,
    file: Annotated[Path, argument("FILE", "JSON lines.")],
    as_json: AsJson = False,
) -> None:
    """Sets a timer for each line of a file.

    A line is such as {"body": …, "key": …, "at": …}; a wrong one is named, and left out. One
    without an id gets one from its text: imported again, it is a duplicate.
    """
    with target.opened() as app:
        found = import_timers(app, topic, file, on_error=say_error)
    if as_json:
        say_json(
            {"topic": topic, "set": found.done, "outcomes": found.outcomes, "wrong": found.wrong}
        )
    else:
        detail = ", ".join(f"{count} {outcome}" for outcome, count in found.outcomes.items())
        shown = f" ({detail})" if detail else ""
        say(f"{counted(found.done, 'timer')} of {file} in {topic}{shown}; {found.wrong} wrong")
    if found.wrong:
        raise Exit(1)


def _json_of(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise BadBody("body", text, f"it is not JSON ({error})", "quote texts: '\"a\"'") from None


def _steps(topic: str, word: str, *, dry_run: bool) -> Steps:
    done = f"of {topic} {'would be ' if dry_run else ''}{word}"
    return Steps("timer", done, "the others are as they were")


def _say_changes(
    topic: str, changes: TimerChanges, steps: Steps, *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        say_json({"topic": topic, "dry_run": dry_run, **msgspec.to_builtins(changes)})
        return
    say(steps.total(changes.done))
    if changes.doing or changes.gone:
        say(f"{changes.doing} in the hands of a handler, {changes.gone} changed meanwhile: left")


def _say_moved(topic: str, key: str, moved: Moved, word: str, *, as_json: bool) -> None:
    if as_json:
        say_json({"topic": topic, "key": key, "outcome": str(moved)})
    elif moved is Moved.DONE:
        say(f"{word} {key} in {topic}")
    elif moved is Moved.DOING:
        say(f"a handler has {key} now: nothing was changed")
    else:
        say(f"{topic} has no timer {key}")
    if moved is not Moved.DONE:
        raise Exit(1)


def _facts(status: TimerStatus) -> dict[str, Any]:
    return {
        "group": status.group, "state": status.state, "id": status.id, "key": status.key,
        "due": moment(status.due_ms), "ended": moment(status.ended_ms),
        "attempts": status.attempts, "by": status.by, "error": status.error,
        "history": [entry_as_json(each) for each in status.history],
        "looked": status.looked, "place": status.place,
    }  # fmt: skip
