"""Names that a shell completes: of topics, groups, schedules and workers, as the store has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from qframe.verbs.parameters import Completed

if TYPE_CHECKING:
    import click

    from qframe.app.qframe import QFrame

MOST = 200


def names_for(kind: Completed) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes a parameter with names of a kind; with none where the store cannot be asked."""

    def complete(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
        from qframe.cli.target import Target
        from qframe.errors import QFrameError

        given = {name: ctx.params.get(name) for name in Target._fields}
        try:
            with Target(**given).opened() as app:
                found = [name for name in _names(app, kind, ctx.params) if name.startswith(begun)]
        except (QFrameError, OSError):
            return []
        return found[:MOST]

    return complete


def _names(app: QFrame, kind: Completed, given: dict[str, Any]) -> Iterable[str]:
    topic, group = given.get("topic") or given.get("name"), given.get("group")
    if kind == "topic":
        return [each.name for each in app.store.topics()]
    if kind == "schedule":
        return [each.name for each in app.admin.schedules(limit=MOST).schedules]
    if kind == "worker":
        return [each.id for each in app.admin.workers(topic, group)]
    return app.admin.groups(topic) if topic else []
