"""`qframe doctor`: examines the installation, and says what to do."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from click.exceptions import Exit
from rich.text import Text

from qframe.cli.flags import After, AsJson
from qframe.cli.output import say, say_json, table
from qframe.cli.target import Target, coordinated
from qframe.clock import SYSTEM_CLOCK
from qframe.verbs.parameters import option

_STYLES: Final = {"error": "red", "warning": "yellow", "note": ""}


@coordinated
def doctor(
    target: Target,
    strict: Annotated[
        bool, option("--strict", help="Exit with 1 for warnings too, not only for errors.")
    ] = False,
    after: After = "",
    as_json: AsJson = False,
) -> None:
    """Examines an installation, and changes nothing.

    It looks at settings, store, topics and coordinator, and names a remedy for each finding. Groups
    are examined for half a second, topic by topic; where some are left, it says how to go on. Exits
    with 1 if an error is found.
    """
    from qframe.doctor.examine import examine  # no other command pays for loading all stores

    found = examine(target.settings(), SYSTEM_CLOCK, after)
    if as_json:
        say_json(msgspec.to_builtins(found))
    else:
        table(("setting", "value", "from"), [(e.name, e.value, e.source) for e in found.settings])
        say("")
        say(", ".join(f"{name} {number}" for name, number in found.versions.items()))
        rows = [
            (Text(each.level, _STYLES[each.level]), each.check, each.what, each.remedy)
            for each in found.findings
        ]
        if rows:
            say("")
            table(("level", "check", "what", "remedy"), rows)
        if not found.findings:
            say("nothing is wrong")
    bad = {"error", "warning"} if strict else {"error"}
    if any(each.level in bad for each in found.findings):
        raise Exit(1)
