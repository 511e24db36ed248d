"""`qframe workers` and `qframe slots`: who works, and who owns what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from qframe.cli.flags import AsJson, TopicName, Watch
from qframe.cli.output import drawn_table
from qframe.cli.place import Place, coordinated
from qframe.cli.times import ago
from qframe.cli.tune import marked
from qframe.cli.watch import View, show
from qframe.identity import host_of
from qframe.ownership import OwnerInfo, WorkerInfo

NO_WORKER = "no worker is there; start one: qframe worker MODULE"

AnyTopic = Annotated[str | None, typer.Argument(metavar="TOPIC", help="Of this topic only.")]
AnyGroup = Annotated[str | None, typer.Argument(metavar="GROUP", help="Of this group only.")]


@coordinated
def workers(
    place: Place,
    topic: AnyTopic = None,
    group: AnyGroup = None,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Lists the workers that live, and what they consume."""
    with place.opened() as app:

        def look() -> View:
            found = app.admin.workers(topic, group)
            return View(
                [_worker_as_json(each) for each in found],
                draw_workers(found, app.store.now_ms()),
            )

        show(look, as_json=as_json, watch=watch)


@coordinated
def slots(
    place: Place,
    topic: TopicName,
    group: AnyGroup = None,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Tells which worker owns each slot of a topic, for each group.

    The epoch only grows: of two that took themselves for a slot's owner, the larger one is in
    force.
    """
    with place.opened() as app:

        def look() -> View:
            found = app.admin.owners(topic, group)
            return View(
                [msgspec.to_builtins(each) for each in found],
                draw_slots(topic, found, app.store.now_ms()),
            )

        show(look, as_json=as_json, watch=watch)


def draw_workers(found: Sequence[WorkerInfo], now_ms: int) -> list[RenderableType]:
    """A row for each worker."""
    if not found:
        return [Text(NO_WORKER)]
    rows = [(each.id, ago(each.since_ms, now_ms), each.slots, _consumers(each)) for each in found]
    return [drawn_table(("worker", "since", "slots", "consumers"), rows)]


def draw_slots(topic: str, found: Sequence[OwnerInfo], now_ms: int) -> list[RenderableType]:
    """A row for each slot; a group is named in its first."""
    if not found:
        return [
            Text(f"no group has subscribed to {topic} yet; start a worker with a consumer for it")
        ]
    rows = [
        (
            "" if index and found[index - 1].group == each.group else _group(each), each.slot,
            each.worker or Text("nobody", "red"), ago(each.since_ms, now_ms), each.epoch,
        )
        for index, each in enumerate(found)
    ]  # fmt: skip
    parts: list[RenderableType] = [drawn_table(("group", "slot", "owner", "since", "epoch"), rows)]
    if not any(each.worker for each in found):
        parts.append(Text(NO_WORKER))
    return parts


def _consumers(worker: WorkerInfo) -> str:
    return ", ".join(marked(each, paused=each in worker.paused) for each in worker.consumers)


def _group(owner: OwnerInfo) -> str:
    return marked(owner.group, paused=owner.paused)


def _worker_as_json(worker: WorkerInfo) -> dict[str, Any]:
    return {"id": worker.id, "host": host_of(worker.id), **msgspec.to_builtins(worker)}
