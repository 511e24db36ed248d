"""`qframe groups seek`: moves a group of a stream to another place in it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from qframe.admin.groups import SeekPreview
from qframe.cli.commands import BadCommand
from qframe.cli.flags import AsJson, By, GroupName, TopicName
from qframe.cli.output import counted, say, say_json
from qframe.cli.target import Target, targeted
from qframe.cli.times import moment_of
from qframe.verbs.parameters import argument, option


@targeted
def seek(
    target: Target,
    topic: TopicName,
    group: GroupName,
    to: Annotated[
        str,
        argument("TO", "earliest, latest, an offset, or a time with its zone."),
    ],
    slot: Annotated[
        int | None, option(least=0, metavar="N", help="Only this slot; with an offset.")
    ] = None,
    preview: Annotated[
        bool, option("--preview", help="Only say how many messages would come again.")
    ] = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Moves a group of a stream to another place in it.

    It handles next what was published from there on. A number is an offset; a time is such as
    2026-01-31T10:00:00Z. Retries that wait are dropped.
    """
    position = _position(to, slot)
    with target.acting(by) as (_, admin):
        if preview:
            _say_preview(admin.seek_preview(topic, group, **position), topic, group, as_json)
            return
        positions = admin.seek(topic, group, **position)
    if as_json:
        say_json({"topic": topic, "group": group, "offsets": positions})
        return
    say(f"{topic}/{group} continues at:")
    for moved, offset in sorted(positions.items()):
        say(f"  slot {moved}: {offset}")


def _say_preview(found: SeekPreview, topic: str, group: str, as_json: bool) -> None:
    if as_json:
        say_json({"topic": topic, "group": group, **msgspec.to_builtins(found)})
        return
    say(f"{topic}/{group} would continue at, and nothing is changed:")
    for slot, offset in sorted(found.offsets.items()):
        say(f"  slot {slot}: {offset}")
    say(
        f"{counted(found.coming, 'message')} would be handed out, {found.again} of them again; "
        f"{found.passed} unsettled would be passed, {found.retries} waiting for a retry "
        f"dropped, {found.doing} in hand fenced off"
    )


def _position(to: str, slot: int | None) -> dict[str, Any]:
    if to.isascii() and to.isdigit() and len(to) < 19:
        return {"offset": int(to) if slot is None else {slot: int(to)}}
    if slot is not None:
        raise BadCommand("slot", slot, f"{to!r} is not an offset", "leave --slot out")
    if to in ("earliest", "latest"):
        return {"to": to}
    remedy = "use earliest, latest, an offset, or a time such as 2026-01-31T10:00:00Z"
    return {"time": moment_of(to, "to", remedy)}
