"""`qframe messages peek` and `qframe store verify`: looking, and mending what is asked for."""

from __future__ import annotations

from typing import Annotated

from click.exceptions import Exit

from qframe.admin.looking import STATES, unknown_fault
from qframe.cli.commands import check_states
from qframe.cli.flags import AsJson, By, GroupName, Limit, TopicName
from qframe.cli.output import facts, say, say_json, say_json_array, table
from qframe.cli.records import as_json as record_as_json
from qframe.cli.records import body_text, second, why
from qframe.cli.target import Target, targeted
from qframe.clock import moment
from qframe.codec import own_headers
from qframe.stores.faults import is_mendable
from qframe.stores.records import Record
from qframe.stores.types import TopicList
from qframe.verbs.parameters import argument, option


@targeted
def peek(
    target: Target,
    topic: TopicName,
    group: GroupName,
    state: Annotated[
        list[str] | None,
        option(metavar="STATE", help=f"Only these of {', '.join(STATES)}; may be repeated."),
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Shows a group's messages without taking them.

    They come slot by slot, the next ones first.
    """
    check_states(state or (), STATES)
    with target.opened() as app:
        records = app.admin.peek(
            topic, group, states=state or ("waiting", "todo", "doing"), limit=limit
        )
    if as_json:
        say_json_array(map(record_as_json, records))
    elif not records:
        say(f"no messages in these states for {topic}/{group}")
    else:
        table(
            ("slot", "state", "id", "key", "attempts", "due", "body"),
            [
                (
                    each.slot, each.state, each.id, each.key, each.attempts,
                    second(each.shown_due_ms), body_text(each),
                )
                for each in records
            ],
            cut=True,
        )  # fmt: skip
        if len(records) == limit:
            say(f"these are the first {limit}, slot by slot; if there are more: --limit N")


@targeted
def verify(
    target: Target,
    topic: Annotated[str | None, argument("TOPIC", "All if left out.", completes="topic")] = None,
    repair: Annotated[
        bool, option("--repair", help="Mend what can be mended without a guess.")
    ] = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Audits that no message is lost or in two places.

    Changes nothing without --repair. Exits with 1 if something is wrong, and still is.
    """
    with target.acting(by) as (app, admin):
        found = app.store.topics() if topic is None else TopicList()
        names = [each.name for each in found] if topic is None else [topic]
        repaired = {name: admin.repair(name) if repair else [] for name in names}
        faults = {name: admin.verify(name) for name in names}
        for error in found.unread:
            names.append(name := str(error.value))
            repaired[name], faults[name] = [], [unknown_fault(error)]
    if as_json:
        say_json(
            [{"topic": name, "faults": faults[name], "repaired": repaired[name]} for name in names]
        )
    else:
        for name in names:
            _say_audit(name, faults[name], repaired[name])
        if not names:
            say("no topics yet: nothing to verify")
        mendable = sum(is_mendable(fault) for found in faults.values() for fault in found)
        if mendable and not repair:
            say(f"qframe store verify --repair mends {mendable} of these")
    if any(faults.values()):
        raise Exit(1)


def _say_audit(name: str, faults: list[str], repaired: list[str]) -> None:
    """Shows the faults of a topic, and what was mended."""
    words = [f"{len(repaired)} repaired"] if repaired else []
    words += [f"{len(faults)} wrong"] if faults else []
    say(f"{name}: {', '.join(words) or 'ok'}")
    for each in repaired:
        say(f"  repaired: {each}")
    for each in faults:
        say(f"  {each}")


def say_record(record: Record, now_ms: int) -> None:
    """Everything about a message in one place, its body in full."""
    group = "" if record.group is None else f", group {record.group}"
    say(f"{record.state} in {record.topic}{group}: {why(record, now_ms)}")
    say_facts(record)


def say_facts(record: Record) -> None:
    """Everything about a message in one place, without saying why."""
    facts(
        [
            ("id", record.id),
            ("key", record.key),
            ("slot", record.slot),
            ("seq", record.seq),
            ("published", moment(record.published_at_ms)),
            ("due", moment(record.shown_due_ms)),
            ("priority", record.priority or None),
            ("attempts", record.attempts or None),
            ("lost", record.lost or None),
            ("in hand since", moment(record.held_since_ms)),
            ("lease until", moment(record.lease_until_ms)),
            ("died", moment(record.died_at_ms)),
            ("headers", own_headers(record.headers) or None),
            ("body", body_text(record, limit=None)),
            ("error", record.error),
            ("traceback", record.traceback and record.traceback.rstrip()),
        ],
        indent="  ",
    )
