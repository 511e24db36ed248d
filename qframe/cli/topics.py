"""`qframe topics list`, `show` and `declare`, `qframe groups list`: what there is, and how far."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Annotated, Any, cast

import msgspec
from rich.console import RenderableType
from rich.text import Text

from qframe.admin.rounds import Rounds
from qframe.admin.totals import UNKNOWN, TopicTotals, Totals, totals_in, unknown_in
from qframe.cli.flags import After, AsJson, Everything, TopicName, Watch
from qframe.cli.output import drawn_table, say
from qframe.cli.target import Target, targeted
from qframe.cli.times import duration_of
from qframe.cli.tune import in_words, marked
from qframe.cli.watch import View
from qframe.cli.watch import show as show_again
from qframe.clock import SYSTEM_CLOCK
from qframe.stores.base import Store
from qframe.topic import Kind, KindName, SubjectRule, Topic, is_internal
from qframe.verbs.parameters import argument, option

_COUNTS = ("waiting", "todo", "doing", "dead", "settled")


@targeted
def list_topics(
    target: Target,
    everything: Everything = False,
    after: After = "",
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Lists all topics, and where their messages stand for each group.

    It counts for half a second, and says how to go on where that was too short; with --json it
    counts all.
    """
    with target.opened() as app:
        rounds = Rounds[TopicTotals](SYSTEM_CLOCK, inf if as_json else None)

        def look() -> View:
            stored = app.store.topics()
            declared = [topic for topic in stored if topic.name > after]
            found = rounds.look(declared, partial(totals_in, app.store))
            listed = [*found, *(each for each in unknown_in(stored) if each.name > after)]
            shown = [topic for topic in listed if everything or not is_internal(topic.name)]
            drawn = _drawn_topics(shown, app.store)
            if left := len(declared) - len(found):
                next_ones = "" if watch else f"; go on: qframe topics list --from {found[-1].name}"
                drawn.append(Text(f"{left} more topics were not counted yet{next_ones}"))
            return View([_as_json(topic) for topic in listed], drawn)

        show_again(look, as_json=as_json, watch=watch)


@targeted
def show(
    target: Target,
    topic: TopicName,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Shows one topic, and the states of its messages for each group."""
    with target.opened() as app:

        def look() -> View:
            found = app.admin.topic(topic)
            return View([_as_json(found)], _drawn_topics([found], app.store))

        show_again(look, as_json=as_json, watch=watch)


@targeted
def declare(
    target: Target,
    name: Annotated[str, argument("NAME", "The topic's name.")],
    kind: Annotated[str, option(metavar="KIND", help=f"One of {', '.join(Kind)}.")] = "stream",
    slots: Annotated[int, option(metavar="N", help="How many partitions, a power of two.")] = 16,
    retain: Annotated[
        str | None, option(metavar="TIME", help="How long a stream keeps messages: 24h.")
    ] = None,
    max_length: Annotated[
        int | None, option(metavar="N", help="The largest number of unsettled messages.")
    ] = None,
    dedupe_window: Annotated[
        str, option(metavar="TIME", help="How long a repeated id counts as a duplicate.")
    ] = "1h",
    gap_timeout: Annotated[
        str | None,
        option(metavar="TIME", help="How long an ordered topic waits for a gap: 30s."),
    ] = None,
    subject: Annotated[
        str | None,
        option(
            metavar="RULE",
            help="How delay and priority topics queue a message without a key: by id or body.",
        ),
    ] = None,
    history: Annotated[
        str | None,
        option(metavar="TIME", help="How long to keep how attempts ended, for explain."),
    ] = None,
) -> None:
    """Declares a topic.

    Its kind stays as it is from then on, and its slots until they are doubled.
    """
    topic: Topic = Topic(
        name, cast("KindName", kind), slots, retain=duration_of(retain), max_length=max_length,
        dedupe_window=duration_of(dedupe_window), gap_timeout=duration_of(gap_timeout),
        subject=cast("SubjectRule | None", subject), history=duration_of(history),
    )  # fmt: skip
    with target.opened(creating=True) as app:
        app.declare(topic)
    say(f"topic {topic.name}: {topic.kind}, {topic.slots} slots")


@targeted
def groups(
    target: Target,
    topic: TopicName,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Lists a topic's groups, and how far each one is."""
    with target.opened() as app:

        def look() -> View:
            names = app.admin.groups(topic)
            found = app.admin.topic(topic)
            listed = [totals for totals in found.groups if totals.group in names]
            drawn = [] if found.damaged and not listed else _drawn_groups(found.name, listed)
            hints = _hints(topic, app.admin.retired(topic))
            shown = [*drawn, *_damaged([found]), *hints]
            return View([_totals_as_json(totals) for totals in listed], shown)

        show_again(look, as_json=as_json, watch=watch)


def _drawn_topics(found: Sequence[TopicTotals], store: Store) -> list[RenderableType]:
    if not found:
        where = f"{store.url}, namespace {store.namespace}"
        remedy = "declare one: qframe topics declare NAME --kind stream --slots 16"
        return [Text(f"no topics yet in {where}; {remedy}")]
    rows = [row for topic in found for row in _rows(topic)]
    table = drawn_table(("topic", "kind", "slots", "group", *_COUNTS), rows)
    return [table, *_damaged(found)]


def _damaged(found: Sequence[TopicTotals]) -> list[RenderableType]:
    """A line for each group that cannot be counted, and for each topic."""
    return [
        Text(
            f"topic {topic.name} is unknown: {why}"
            if topic.kind == UNKNOWN
            else f"{f'group {group} of ' if group else ''}topic {topic.name} is damaged: {why}; "
            f"run qframe store verify {topic.name} to see where"
        )
        for topic in found
        for group, why in topic.damaged.items()
    ]


def _drawn_groups(topic: str, listed: Sequence[Totals]) -> list[RenderableType]:
    if not listed:
        return [
            Text(f"no group has subscribed to {topic} yet; start a worker with a consumer for it")
        ]
    rows = [(each.group, each.lag, *_counts(each), in_words(each.tuning)) for each in listed]
    return [drawn_table(("group", "lag", *_COUNTS, "tuned"), rows)]


def _hints(topic: str, retired: Sequence[str]) -> list[RenderableType]:
    return [
        Text(
            f"group {group} has no worker and keeps messages beyond the topic's retain; "
            f"if nobody needs it: qframe groups drop {topic} {group}"
        )
        for group in retired
    ]


def _rows(topic: TopicTotals) -> list[tuple[object, ...]]:
    """A row for each group; the topic is named in the first."""
    of = "" if topic.growing_to is None else f" of {topic.growing_to}"
    first: tuple[object, ...] = (topic.name, str(topic.kind), f"{topic.slots}{of}")
    groups = [(_name(totals), *_counts(totals)) for totals in topic.groups]
    sign = "" if topic.kind == UNKNOWN else "(damaged)"
    groups += [(f"{group} {sign}".strip(), *["-"] * len(_COUNTS)) for group in topic.damaged]
    return [
        (*(first if index == 0 else ("", "", "")), *group) for index, group in enumerate(groups)
    ]


def _name(totals: Totals) -> str:
    if not totals.group:
        return "(none yet)"
    return marked(totals.group, paused=totals.tuning.paused)


def _counts(totals: Totals) -> tuple[int, ...]:
    return tuple(getattr(totals, name) for name in _COUNTS)


def _as_json(topic: TopicTotals) -> dict[str, Any]:
    return {
        "name": topic.name,
        "kind": str(topic.kind),
        "slots": topic.slots,
        "growing_to": topic.growing_to,
        "groups": [_totals_as_json(totals) for totals in topic.groups],
        "damaged": topic.damaged,
    }


def _totals_as_json(totals: Totals) -> dict[str, Any]:
    return {
        "group": totals.group, "lag": totals.lag, "published": totals.published,
        "waiting": totals.waiting, "retrying": totals.retrying, "todo": totals.todo,
        "doing": totals.doing, "settled": totals.settled, "dead": totals.dead,
        "cancelled": totals.cancelled, "oldest_ms": totals.oldest_ms,
        "tuning": msgspec.to_builtins(totals.tuning),
    }  # fmt: skip
