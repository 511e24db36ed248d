"""A job: how far what is done to many messages has come, and a button that stops it."""

from __future__ import annotations

from typing import Any

from qframe.errors import BadOption
from qframe.web.desk import Visit


def facts(visit: Visit) -> dict[str, Any]:
    """The job of a number.

    Raises:
        BadOption: if this process has none of that number.
    """
    number = visit.part("number")
    job = visit.desk.jobs.find(number)
    if job is None:
        raise BadOption(
            "job", number, "this console knows none of that number",
            "look at the dead letters: what was done is done, and the rest is there",
        )  # fmt: skip
    what = "timers" if job.task.group is None else "dead letters"
    return {"title": f"{job.task.verb} of {what}", "job": job}
