"""The audit: what was done through this console, and every pause with its reason."""

from __future__ import annotations

from typing import Any

from qframe.web.desk import Visit


def facts(visit: Visit) -> dict[str, Any]:
    """The last actions of this process, and the pauses of the store."""
    look = visit.desk.sampler.look()
    holds = [
        (*each.name, hold)
        for each in look.groups if each.totals.group for hold in each.totals.tuning.holds
    ]  # fmt: skip
    asked = visit.asked("verify")
    return {
        "title": "Audit", "actions": list(reversed(visit.desk.actions)), "holds": holds,
        "look": look, "verified": asked, "names": [each.name for each in look.topics],
        "live": not asked,  # to verify costs more than to look
        "faults": visit.admin.verify(asked) if asked else [],
    }  # fmt: skip
