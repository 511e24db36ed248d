"""`qframe workers list` and `qframe slots list`: who works, and who owns what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from qframe.admin.owners import SILENT_MS, OwnerInfo, WorkerInfo
from qframe.cli.commands import BadCommand
from qframe.cli.flags import AsJson, By, Everything, TopicName, Watch
from qframe.cli.output import drawn_table, say_unknown
from qframe.cli.stacks import asked_stacks
from qframe.cli.target import Target, coordinated
from qframe.cli.times import ago, length
from qframe.cli.tune import marked
from qframe.cli.watch import View, show
from qframe.identity import host_of
from qframe.telemetry.facts import ranges
from qframe.topic import is_internal
from qframe.verbs.parameters import argument, option

NO_WORKER = "no worker is running; start one: qframe worker MODULE"

AnyTopic = Annotated[str | None, argument("TOPIC", "This topic only.", completes="topic")]
AnyGroup = Annotated[str | None, argument("GROUP", "This group only.", completes="group")]
Stacks = Annotated[
    bool, option("--stacks", help="Show the lines of code that their handlers run now.")
]


@coordinated
def workers(
    target: Target,
    topic: AnyTopic = None,
    group: AnyGroup = None,
    everything: Everything = False,
    watch: Watch = False,
    stacks: Stacks = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Lists live workers and their consumers."""
    if stacks and watch:
        raise BadCommand("watch", True, "stacks are asked for once", "leave --watch out")
    if stacks:
        with target.acting(by) as (app, admin):
            view = asked_stacks(admin, admin.workers(topic, group), app.store.now_ms())
            show(lambda: view, as_json=as_json, watch=False)
        return
    with target.opened() as app:
        if topic is None:
            say_unknown(app.store.topics().unread)

        def look() -> View:
            found = app.admin.workers(topic, group)
            return View(
                [_worker_as_json(each) for each in found],
                draw_workers(found, app.store.now_ms(), everything=everything),
            )

        show(look, as_json=as_json, watch=watch)


@coordinated
def slots(
    target: Target,
    topic: TopicName,
    group: AnyGroup = None,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Shows which worker owns which slots of a topic.

    A slot's epoch only grows: of two workers that believe they own it, the larger one is in force.
    """
    with target.opened() as app:

        def look() -> View:
            found = app.admin.owners(topic, group)
            return View(
                [msgspec.to_builtins(each) for each in found],
                draw_slots(topic, found, app.store.now_ms()),
            )

        show(look, as_json=as_json, watch=watch)


def draw_workers(
    found: Sequence[WorkerInfo], now_ms: int, *, everything: bool = False
) -> list[RenderableType]:
    """A row for each worker."""
    if not found:
        return [Text(NO_WORKER)]
    rows = [
        (_heard(each, now_ms), ago(each.since_ms, now_ms), each.slots, _consumers(each, everything))
        for each in found
    ]
    return [drawn_table(("worker", "since", "slots", "consumers"), rows)]


def _heard(worker: WorkerInfo, now_ms: int) -> Text:
    """A worker's id, and for how long it is silent, if it is."""
    silent_ms = 0 if worker.told_ms is None else now_ms - worker.told_ms
    if silent_ms < SILENT_MS:
        return Text(worker.id)
    return Text(f"{worker.id} (silent for {length(silent_ms / 1000)})", "red")


def draw_slots(topic: str, found: Sequence[OwnerInfo], now_ms: int) -> list[RenderableType]:
    """A row for each owner, with its slots; a group is named in its first."""
    if not found:
        return [
            Text(f"no group has subscribed to {topic} yet; start a worker with a consumer for it")
        ]
    shares: dict[str, dict[str | None, list[OwnerInfo]]] = {}
    for each in found:
        shares.setdefault(_group(each), {}).setdefault(each.worker, []).append(each)
    rows = [
        (
            "" if index else group, ranges(each.slot for each in owned),
            worker or Text("nobody", "red"), _since(owned, now_ms), _epochs(owned),
        )
        for group, owners in shares.items()
        for index, (worker, owned) in enumerate(owners.items())
    ]  # fmt: skip
    parts: list[RenderableType] = [drawn_table(("group", "slots", "owner", "since", "epoch"), rows)]
    if not any(each.worker for each in found):
        parts.append(Text(NO_WORKER))
    return parts


def _consumers(worker: WorkerInfo, everything: bool) -> str:
    """The groups of a worker, without qframe's own topics unless all are wanted."""
    own = [each for each in worker.consumers if everything or not is_internal(each)]
    words = [marked(each, paused=each in worker.paused) for each in own]
    return ", ".join(words) or "(none of its own)"


def _since(owned: Sequence[OwnerInfo], now_ms: int) -> str | None:
    """When the last of these was taken."""
    times = [each.since_ms for each in owned if each.since_ms is not None]
    return ago(max(times, default=None), now_ms)


def _epochs(owned: Sequence[OwnerInfo]) -> str:
    """The epoch of slots, or the least and the greatest; without the zeros in front."""
    epochs = sorted({each.epoch for each in owned if each.epoch is not None})
    shown = [epoch.lstrip("0") or "0" for epoch in epochs]
    return "-".join(dict.fromkeys([*shown[:1], *shown[-1:]]))


def _group(owner: OwnerInfo) -> str:
    return marked(owner.group, paused=owner.paused)


def _worker_as_json(worker: WorkerInfo) -> dict[str, Any]:
    return {"id": worker.id, "host": host_of(worker.id), **msgspec.to_builtins(worker)}
