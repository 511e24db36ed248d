"""`qframe groups scale`, and the same at `/scale/TOPIC/GROUP` of a health port, for autoscalers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
from rich.console import RenderableType

from qframe.admin.scale import PER_WORKER, Scale
from qframe.app.qframe import QFrame
from qframe.cli.flags import AsJson, GroupName, TopicName, Watch
from qframe.cli.output import drawn_table
from qframe.cli.target import Target, coordinated
from qframe.cli.times import duration_of
from qframe.cli.watch import View, show
from qframe.errors import (
    BadInput,
    BadOption,
    CoordinatorUnavailable,
    QFrameError,
    StoreUnavailable,
    UnknownGroup,
    UnknownTopic,
)
from qframe.http_port import HttpReply, HttpRequest, HttpRoute, json_reply
from qframe.options.rules import refuse_unknown
from qframe.topic import duration_ms
from qframe.verbs.parameters import option

RATES_OVER_MS: Final = 10_000


@coordinated
def scale(
    target: Target,
    topic: TopicName,
    group: GroupName,
    per_worker: Annotated[
        int,
        option(
            "--per-worker", least=1, metavar="N", help="How many due messages a worker is to have."
        ),
    ] = PER_WORKER,
    over: Annotated[
        str,
        option("--over", metavar="DURATION", help="How long to look for the rates; 0 for none."),
    ] = "1s",
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Shows a group's load, and how many workers it has use for."""
    over_ms = duration_ms(duration_of(over) or 0, "over")
    with target.opened() as app:
        before: list[Scale | None] = [None]
        if over_ms:
            before[0] = app.admin.scale(topic, group)
            threading.Event().wait(over_ms / 1000)

        def look() -> View:
            found = app.admin.scale(topic, group, per_worker=per_worker, before=before[0])
            before[0] = found
            return View(_as_json(found), _drawn(found))

        show(look, as_json=as_json, watch=watch)


class ScaleRoute:
    """Replies to autoscalers; the rates are those since an earlier request, 10 s ago or more.

    Args:
        apps: returns the apps, one of which knows the topic.
    """

    PATH: Final = "/scale/{topic}/{group}"

    def __init__(self, apps: Callable[[], Sequence[QFrame]]) -> None:
        self._apps = apps
        self._earlier: dict[tuple[str, str], Scale] = {}
        self._guard = threading.Lock()

    def routes(self) -> dict[str, HttpRoute]:
        """The route, by its path; it asks the store."""
        return {self.PATH: HttpRoute(self._reply, waits=True, guarded=True)}

    def _reply(self, request: HttpRequest) -> HttpReply:
        try:
            found = self._look(request)
        except (UnknownTopic, UnknownGroup) as error:
            return json_reply(404, {"error": str(error)})
        except BadInput as error:
            return json_reply(400, {"error": str(error)})
        except (StoreUnavailable, CoordinatorUnavailable) as error:
            return json_reply(503, {"error": str(error)})
        return json_reply(200, _as_json(found))

    def _look(self, request: HttpRequest) -> Scale:
        topic, group = request.params["topic"], request.params["group"]
        for name in request.query:
            if name != "per_worker":
                refuse_unknown("parameter", name, ["per_worker"])
        per_worker = _number(request.query.get("per_worker", str(PER_WORKER)))
        before = self._earlier.get((topic, group))
        unknown: QFrameError | None = None
        for app in self._apps():
            try:
                found = app.admin.scale(topic, group, per_worker=per_worker, before=before)
            except (UnknownTopic, UnknownGroup) as error:
                unknown = unknown or error
                continue
            with self._guard:  # a group that exists: so there are not more of these than groups
                if before is None or found.at_ms - before.at_ms >= RATES_OVER_MS:
                    self._earlier[topic, group] = found
            return found
        raise unknown or UnknownTopic(topic, [])


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadOption("per_worker", text, "it is not a whole number", "try ?per_worker=100")
    return int(text)


def _as_json(found: Scale) -> dict[str, Any]:
    return dict(msgspec.to_builtins(found))


def _drawn(found: Scale) -> list[RenderableType]:
    columns = (
        "due", "in flight", "oldest due", "arrival/s", "handled/s", "workers", "wanted", "slots"
    )  # fmt: skip
    row = (
        found.due, found.in_flight, f"{found.oldest_due_s:.1f} s", found.arrival_per_s,
        found.handled_per_s, found.workers, found.wanted_workers, found.slots,
    )  # fmt: skip
    return [drawn_table(columns, [row])]
