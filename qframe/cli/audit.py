"""`qframe store audit`: who did what, the last first."""

from __future__ import annotations

from typing import Annotated

import msgspec

from qframe.cli.flags import AsJson, Limit
from qframe.cli.output import say, say_json, table
from qframe.cli.records import second
from qframe.cli.target import Target, targeted
from qframe.verbs.parameters import option


@targeted
def audit(
    target: Target,
    limit: Limit = 100,
    before: Annotated[
        int | None,
        option(least=0, metavar="N", help="Only those before this number, from --json."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Lists who did what in the last 90 days."""
    with target.opened() as app:
        found = app.admin.audit(limit, before=before)
    if as_json:
        say_json([msgspec.to_builtins(each) for each in found])
    elif not found:
        say("nothing was done within 90 days")
    else:
        table(
            ("when", "by", "verb", "where", "count", "more"),
            [
                (
                    second(each.at_ms), each.by, each.verb,
                    each.topic if each.group is None else f"{each.topic}/{each.group}", each.count,
                    ", ".join(f"{name} {value}" for name, value in each.facts.items()),
                )
                for each in found
            ],
            cut=True,
        )  # fmt: skip
