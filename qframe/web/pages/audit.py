"""The audit: what was done in any process, and every pause with its reason."""

from __future__ import annotations

from typing import Any, Final

from qframe.web.desk import Visit

SHOWN: Final = 100


def facts(visit: Visit) -> dict[str, Any]:
    """The last actions, the latest first, and the pauses of the store.

    Raises:
        BadOption: if `before` is no number.
    """
    look = visit.desk.sampler.look()
    holds = [
        (*each.name, hold)
        for each in look.groups if each.totals.group for hold in each.totals.tuning.holds
    ]  # fmt: skip
    asked = visit.asked("verify")
    before = visit.number("before")
    actions = visit.admin.audit(SHOWN + 1, before=before)
    return {
        "title": "Audit", "actions": actions[:SHOWN], "before": before,
        "next": actions[SHOWN - 1].number if len(actions) > SHOWN else None, "holds": holds,
        "look": look, "verified": asked, "names": [each.name for each in look.topics],
        "live": not asked and before is None,  # to verify costs more than to look
        "faults": visit.admin.verify(asked) if asked else [],
    }  # fmt: skip
