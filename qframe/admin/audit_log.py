"""The audit: one event for each verb of `app.admin`, of who did what."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from qframe.errors import BadOption, QFrameError
from qframe.events import Events
from qframe.identity import host_name
from qframe.topic import Topic

MAX_CHARS = 200


class AuditLog:
    """Emits `admin.action` for what was done, and has it kept.

    Args:
        events: hears it.
        keep: keeps its facts where others see them; None where they are not kept.
        by: who does it; the user and host of this process where None is given.
        source: where the call comes from; the host and process where None is given.

    Raises:
        BadOption: if `by` or `source` is empty, or longer than 200 characters.
    """

    def __init__(
        self, events: Events, *, keep: Callable[[Mapping[str, Any]], None] | None = None,
        by: str | None = None, source: str | None = None,
    ) -> None:  # fmt: skip
        self.events = events
        self.keep = keep
        self.by: str = user_at_host() if by is None else _checked("by", by)
        self.source: str = (
            f"{host_name()}-{os.getpid()}" if source is None else _checked("source", source)
        )

    def record(
        self, verb: str, topic: Topic | str, group: str | None, *, count: int, **what: object
    ) -> None:
        """Says that a verb changed `count` things of a topic, or of one of its groups."""
        if not self.events and self.keep is None:
            return
        name = topic if isinstance(topic, str) else topic.name
        facts = {
            "verb": verb, "by": self.by, "source": self.source, "topic": name,
            **({} if group is None else {"group": group}), "count": count,
            **{name: value for name, value in what.items() if value is not None},
        }  # fmt: skip
        if self.events:
            self.events.emit("admin.action", **facts)
        if self.keep is not None:
            try:
                self.keep(facts)
            except QFrameError as error:  # what was done is done
                self.events.emit("audit.failed", verb=verb, error=error)


@cache
def user_at_host() -> str:
    """The user and the host of this process, as `ada@host-1`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{host_name()}"


def _checked(name: str, value: object) -> str:
    if isinstance(value, str) and value.strip() and len(value) <= MAX_CHARS:
        return value
    raise BadOption(
        name, value, f"it must be a text of 1 to {MAX_CHARS} characters", "give a name or address"
    )
