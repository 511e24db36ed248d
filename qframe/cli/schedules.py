"""`qframe schedules`: looked up, put, paused, run, made up for, previewed and deleted."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from qframe.app.qframe import QFrame
from qframe.cli.asking import ask
from qframe.cli.commands import check_beside, check_one_of
from qframe.cli.flags import AsJson, By, Limit, Yes
from qframe.cli.output import facts, say, say_aside, say_json, say_json_array, say_unknown, table
from qframe.cli.records import second
from qframe.cli.search import header_of
from qframe.cli.target import Target, coordinated, targeted
from qframe.cli.times import duration_of, length, moment_of
from qframe.clock import moment
from qframe.errors import BadOption, QFrameError
from qframe.schedules.preview import Preview, Tick, warnings_of
from qframe.schedules.record import Schedule
from qframe.schedules.records import GROUP, TOPIC
from qframe.schedules.timing import in_words
from qframe.verbs.parameters import argument, option

Name = Annotated[str, argument("NAME", "The schedule's name.", completes="schedule")]
Zone = Annotated[str | None, option("--tz", metavar="ZONE", help="The time zone of cron fields.")]
Exclude = Annotated[
    list[str] | None,
    option(
        "--exclude", metavar="DATES", help="A date, a range A/B, or cron fields; more than once."
    ),
]
Dst = Annotated[
    str | None,
    option("--dst", metavar="RULE", help="debian, or literal, when clocks change."),
]
Count = Annotated[int, option("--count", least=1, most=1000, metavar="N", help="How many.")]


@coordinated
def list_schedules(
    target: Target,
    prefix: Annotated[str, argument("PREFIX", "Only those whose name begins so.")] = "",
    limit: Limit = 1000,
    as_json: AsJson = False,
) -> None:
    """Lists schedules, the next one due first."""
    with target.opened() as app:
        found = app.schedules.find(prefix=prefix, limit=limit)
        _warn_without_leader(app, found)
        say_unknown(found.unknown)
    if as_json:
        say_json_array(map(_facts, found))
    elif not found:
        say(f"there is no schedule{f' whose name begins with {prefix}' if prefix else ''}")
    else:
        table(
            ("name", "when", "zone", "topic", "next", "fired", "missed", "state"),
            [
                (
                    each.name, each.timing.when, each.timing.tz, each.template.topic,
                    second(each.next_tick_ms), each.progress.fired, each.progress.missed,
                    _state_of(each),
                )
                for each in found
            ],
            cut=True,
        )  # fmt: skip
        if len(found) == limit:
            say(f"these are the next {limit}; look at more with --limit, or name a PREFIX")


@targeted
def show(target: Target, name: Name, as_json: AsJson = False) -> None:
    """Shows a schedule: timing, message, rules, and how far it is."""
    with target.opened() as app:
        found = app.schedules.get(name)
        if found is None:
            raise _unknown(name)
    _show(found, as_json=as_json)


@coordinated
def put(
    target: Target,
    name: Name,
    when: Annotated[str, argument("WHEN", '"0 9 * * 1-5", "@daily", or "every 15m".')],
    topic: Annotated[str, argument("TOPIC", "Where its messages go.", completes="topic")],
    tz: Zone = "UTC",
    key: Annotated[str | None, option(metavar="KEY", help="The messages' key.")] = None,
    body: Annotated[
        str | None, option(metavar="JSON", help="Their body; {tick} is the tick's time.")
    ] = None,
    header: Annotated[
        list[str] | None, option(metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None,
    tag: Annotated[list[str] | None, option(metavar="TAG", help="A tag.")] = None,
    priority: Annotated[int, option(metavar="N", help="Their priority.")] = 0,
    catch_up: Annotated[
        str, option(metavar="RULE", help="none, latest or all: which late ticks fire.")
    ] = "latest",
    window: Annotated[str, option(metavar="TIME", help="How old they may be.")] = "1d",
    overlap: Annotated[
        str, option(metavar="RULE", help="allow, skip, queue_one or queue_all.")
    ] = "allow",
    jitter: Annotated[str, option(metavar="TIME", help="Ticks fire later by less.")] = "0s",
    start: Annotated[str | None, option(metavar="TIME", help="No tick before.")] = None,
    end: Annotated[str | None, option(metavar="TIME", help="No tick from then on.")] = None,
    exclude: Exclude = None,
    dst: Dst = "debian",
    note: Annotated[str, option(metavar="TEXT", help="A text for people.")] = "",
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Makes a schedule, or changes it to this."""
    headers = {name: value or "" for name, value in map(header_of, header or ())}
    options: Any = {
        "tz": tz, "key": key, "headers": headers or None, "tags": tag or None,
        "priority": priority, "catch_up": catch_up, "window": duration_of(window),
        "overlap": overlap, "jitter": duration_of(jitter), "exclude": exclude or (), "dst": dst,
        "note": note,
        "body": None if body is None else _json_of(body),
        "start": moment_of(start, "start"),
        "end": moment_of(end, "end"),
    }  # fmt: skip
    with target.acting(by) as (app, admin):
        made = admin.put_schedule(name, when, topic=topic, **options)
        _show(made, as_json=as_json)
        for each in warnings_of(made.timing):
            say_aside(f"warning: {each}")
        _warn_without_leader(app, [made])


@targeted
def pause(target: Target, name: Name, by: By = None, as_json: AsJson = False) -> None:
    """Lets no tick fire until it is resumed."""
    with target.acting(by) as (_, admin):
        _show(admin.pause_schedule(name), as_json=as_json)


@targeted
def resume(target: Target, name: Name, by: By = None, as_json: AsJson = False) -> None:
    """Lets ticks fire from now on; those of the pause are left out."""
    with target.acting(by) as (_, admin):
        _show(admin.resume_schedule(name), as_json=as_json)


@targeted
def run(target: Target, name: Name, by: By = None, as_json: AsJson = False) -> None:
    """Publishes its message once, now; its ticks stay as they are."""
    with target.acting(by) as (_, admin):
        published = admin.run_schedule(name)
    if as_json:
        say_json(msgspec.to_builtins(published))
    else:
        say(f"published {published.id}: {published.outcome}")


@targeted
def backfill(
    target: Target,
    name: Name,
    since: Annotated[str, argument("SINCE", "The first moment, with a zone.")],
    until: Annotated[str, argument("UNTIL", "The moment behind the last.")],
    dry_run: Annotated[bool, option("--dry-run", help="Only show the ticks.")] = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Publishes the messages of ticks that are over."""
    range_ = moment_of(since, "since"), moment_of(until, "until")
    with target.acting(by) as (app, admin):
        if dry_run:
            made = app.schedules.backfill(name, *range_, dry_run=True)
        else:
            made = admin.backfill_schedule(name, *range_)
    if as_json:
        say_json(msgspec.to_builtins(made))
        return
    if dry_run:
        _show_ticks(made.ticks)
        say(f"{len(made.ticks)} ticks; nothing was published")
        return
    stored = sum(each.outcome != "duplicate" for each in made.published)
    say(f"{stored} messages published, {len(made.published) - stored} were there already")


@targeted
def preview(
    target: Target,
    name: Annotated[
        str | None, argument("NAME", "A schedule; or give --when.", completes="schedule")
    ] = None,
    when: Annotated[
        str | None, option("--when", metavar="WHEN", help="A timing, before it is put.")
    ] = None,
    tz: Zone = None,
    exclude: Exclude = None,
    dst: Dst = None,
    count: Count = 10,
    as_json: AsJson = False,
) -> None:
    """Shows the next ticks, and warns of those that clocks move."""
    check_one_of("schedules preview", {"NAME": name, "--when": when}, "a schedule or a timing")
    if name is not None:
        timing = {"--tz": tz, "--exclude": exclude, "--dst": dst}
        check_beside("schedules preview", "a NAME", timing, "give --when in place of the name")
    rule: Any = dst or "debian"
    with target.opened() as app:
        found = app.schedules.preview(
            name, when=when, tz=tz or "UTC", exclude=exclude or (), dst=rule, count=count
        )
    if as_json:
        say_json(msgspec.to_builtins(found))
    else:
        _show_preview(found)


@targeted
def delete(
    target: Target,
    name: Name,
    force: Annotated[
        bool, option("--force", help="Also one that this version cannot read.")
    ] = False,
    yes: Yes = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Removes a schedule; its messages stay."""
    with target.acting(by) as (app, admin):
        if not force and app.schedules.get(name) is None:
            raise _unknown(name)
        if not yes:
            ask(f"Delete the schedule {name}?")
        gone = admin.delete_schedule(name, force=force)
    if as_json:
        say_json({"name": name} if gone is None else _facts(gone))
    else:
        say(f"{name} is gone")


def _warn_without_leader(app: QFrame, schedules: Sequence[Schedule]) -> None:
    """Says on stderr that ticks are to come and no worker leads, as far as that can be known."""
    if not any(_state_of(each) in ("active", "blocked") for each in schedules):
        return
    with suppress(QFrameError):
        if not app.coordinator.roster(TOPIC, GROUP).owners:
            sys.stderr.write(
                "warning: no worker leads, so nothing ticks: start one whose app declares a "
                'schedule, or has schedules="on"\n'
            )


def _facts(schedule: Schedule) -> dict[str, Any]:
    """A schedule as programs read it."""
    timing, rules, progress = schedule.timing, schedule.rules, schedule.progress
    return {
        "name": schedule.name, "state": _state_of(schedule), "when": timing.when,
        "words": in_words(timing), "tz": timing.tz, "dst": timing.dst,
        "exclude": list(timing.exclude), "start": moment(timing.start_ms),
        "end": moment(timing.end_ms), "topic": schedule.template.topic,
        "key": schedule.template.key, "body": schedule.template.body,
        "headers": schedule.template.headers, "tags": list(schedule.template.tags),
        "priority": schedule.template.priority, "catch_up": rules.catch_up,
        "window_ms": rules.window_ms, "overlap": rules.overlap, "jitter_ms": rules.jitter_ms,
        "note": schedule.note, "declared": schedule.declared,
        "next_tick": moment(schedule.next_tick_ms), "last_tick": moment(progress.last_tick_ms),
        "last_id": progress.last_id, "held": len(progress.held), "fired": progress.fired,
        "missed": progress.missed, "skipped": progress.skipped, "dropped": progress.dropped,
        "error": progress.error, "changed": moment(schedule.changed_ms),
        "changed_by": schedule.changed_by, "version": schedule.version,
    }  # fmt: skip


def _state_of(schedule: Schedule) -> str:
    if schedule.paused:
        return "paused"
    if schedule.progress.error is not None:
        return "blocked"
    return "active" if schedule.next_tick_ms is not None else "ended"


def _show(schedule: Schedule, *, as_json: bool) -> None:
    if as_json:
        say_json(_facts(schedule))
        return
    timing, template, rules = schedule.timing, schedule.template, schedule.rules
    progress, next_ms = schedule.progress, schedule.next_tick_ms
    local = (
        "" if next_ms is None or timing.tz == "UTC" else f", {timing.local(next_ms):%H:%M} there"
    )
    by = f"by {schedule.changed_by}" if schedule.changed_by else ""
    given = {
        "name": schedule.name, "state": _state_of(schedule), "when": timing.when,
        "words": in_words(timing), "next": next_ms and f"{second(next_ms)}{local}",
        "last": second(progress.last_tick_ms), "topic": template.topic, "key": template.key,
        "body": None if template.body is None else json.dumps(template.body, ensure_ascii=False),
        "headers": ", ".join(f"{name}={text}" for name, text in (template.headers or {}).items()),
        "tags": ", ".join(template.tags), "priority": template.priority,
        "catch-up": f"{rules.catch_up}, within {length(rules.window_ms / 1000)}",
        "overlap": rules.overlap, "jitter": rules.jitter_ms and length(rules.jitter_ms / 1000),
        "start": second(timing.start_ms), "end": second(timing.end_ms),
        "exclude": ", ".join(timing.exclude), "clocks": timing.dst, "note": schedule.note,
        "declared": "in code" if schedule.declared else None,
        "ticks": f"{progress.fired} fired, {progress.missed} missed, {progress.skipped} skipped, "
        f"{progress.dropped} dropped, {len(progress.held)} held back",
        "error": progress.error, "changed": f"{second(schedule.changed_ms)} {by}",
    }  # fmt: skip
    facts((name, value) for name, value in given.items() if value)


def _show_preview(found: Preview) -> None:
    say(found.words)
    _show_ticks(found.ticks)
    for each in found.warnings:
        say(f"note: {each}")


def _show_ticks(ticks: list[Tick]) -> None:
    table(("local", "utc"), [(each.local, each.utc) for each in ticks])


def _json_of(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadOption("body", text, f"it is not JSON ({error})", "quote texts: '\"a\"'") from None


def _unknown(name: str) -> BadOption:
    return BadOption("schedule", name, "there is none of this name", "list: qframe schedules list")
