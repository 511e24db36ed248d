"""Moves of messages out of a dead-letter queue, as its record keeps them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

RUNNING: Final = "RUNNING"
CANCELLING: Final = "CANCELLING"
CANCELLED: Final = "CANCELLED"
COMPLETED: Final = "COMPLETED"
FAILED: Final = "FAILED"
KEPT: Final = 10
"""How many moves a record keeps, as many as SQS lists."""

SILENT_MS: Final = 60_000
"""A gateway that has said nothing of a move for so long has ended in the middle of it."""


class MoveTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A move.

    Attributes:
        handle: names it.
        status: one of SQS's words for it.
        destination: the queue where the messages go; None for where each came from.
        rate: how many in a second at most; None for as many as there are.
        moved: how many have been moved.
        to_move: how many there were when it began.
        started_ms: when it began.
        seen_ms: when its gateway has last written how far it is.
        reason: why it failed.
    """

    handle: str
    status: str
    destination: str | None = None
    rate: int | None = None
    moved: int = 0
    to_move: int = 0
    started_ms: int = 0
    seen_ms: int = 0
    reason: str | None = None

    def at(self, now_ms: int) -> MoveTask:
        """The move as it is now: failed, if its gateway has been silent for too long."""
        if self.is_active and now_ms - self.seen_ms > SILENT_MS:
            return msgspec.structs.replace(self, status=FAILED, reason="its gateway has ended")
        return self

    @property
    def is_active(self) -> bool:
        """Whether it goes on."""
        return self.status in (RUNNING, CANCELLING)

    def shown(self, source_arn: str, destination_arn: str | None) -> dict[str, Any]:
        """The move as it is listed."""
        entry: dict[str, Any] = {
            "TaskHandle": self.handle if self.status == RUNNING else None,
            "Status": self.status, "SourceArn": source_arn, "DestinationArn": destination_arn,
            "MaxNumberOfMessagesPerSecond": self.rate,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "FailureReason": self.reason, "StartedTimestamp": self.started_ms,
        }  # fmt: skip
        return {name: value for name, value in entry.items() if value is not None}
