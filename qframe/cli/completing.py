"""Names that a shell completes: of topics, groups, schedules and workers, as the store has them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from qframe.app.qframe import QFrame
from qframe.cli.target import Target
from qframe.errors import QFrameError
from qframe.verbs.parameters import Completed

MOST: Final = 200


def names_for(kind: Completed) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes a parameter with names of a kind; with none where the store cannot be asked."""

    def complete(ctx: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
        try:
            with _target_of(ctx).opened() as app:
                found = _names(app, kind, ctx.params, begun)
                return [name for name in found if name.startswith(begun)][:MOST]
        except (QFrameError, OSError):
            return []

    return complete


def _target_of(ctx: click.Context) -> Target:
    """The store that is named behind the command, or else before it."""
    given = ChainMap(*(
        {name: value for name, value in each.params.items() if value is not None}
        for each in (ctx, ctx.find_root())
    ))  # fmt: skip
    return Target(**{name: given.get(name) for name in Target._fields})


def _names(app: QFrame, kind: Completed, given: dict[str, Any], begun: str) -> Iterable[str]:
    topic, group = given.get("topic"), given.get("group")
    if kind == "topic":
        return [each.name for each in app.store.topics()]
    if kind == "schedule":
        return [each.name for each in app.admin.schedules(prefix=begun, limit=MOST).schedules]
    if kind == "worker":
        return [each.id for each in app.admin.workers(topic, group)]
    return app.admin.groups(topic) if topic else []
