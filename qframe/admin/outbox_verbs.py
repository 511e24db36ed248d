"""Outboxes for a person on call: looked at, tried again, and freed of messages, with an audit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from qframe.admin.context import AdminRole
from qframe.outbox.open import inspector_of

if TYPE_CHECKING:
    from qframe.outbox.inspector import Waiting
    from qframe.outbox.outbox import Outbox


class OutboxAdmin(AdminRole):
    """The messages of an outbox that wait, and what is to become of refused ones."""

    def outbox_waiting(
        self, outbox: Outbox, limit: int = 100, *, refused: bool = False,
        ids: Collection[str] | None = None,
    ) -> list[Waiting]:  # fmt: skip
        """Messages of an outbox that wait, the oldest first; without the right, without bodies.

        Args:
            outbox: the outbox.
            limit: how many at most.
            refused: only those that their topic refuses.
            ids: only those of these ids, and then all of them.
        """
        context = self._context
        context.require("view")
        inspector = inspector_of(outbox, context.store)
        found = inspector.waiting(limit, refused=refused) if ids is None else inspector.named(ids)
        return found if "body" in context.rights else [each.without_body() for each in found]

    def outbox_retry(self, outbox: Outbox) -> None:
        """Has relays try refused messages again now, and not at the end of their pause.

        Raises:
            NotAllowed: without the right to retry.
        """
        context = self._context
        context.require("retry")
        inspector_of(outbox, context.store).try_again()
        context.audit.record("outbox_retry", "", None, count=1, outbox=outbox.prefix)

    def outbox_bind(self, outbox: Outbox) -> None:
        """Binds an outbox to this store and namespace, whichever it belonged to.

        Relays of the other store publish nothing of it from then on, but for what they have in
        hand at this moment.

        Raises:
            NotAllowed: without the right to seek.
            BadOption: if the store is in a process's memory.
        """
        context = self._context
        context.require("seek")
        inspector_of(outbox, context.store).bind()
        context.audit.record("outbox_bind", "", None, count=1, outbox=outbox.prefix)

    def outbox_drop(self, outbox: Outbox, messages: Sequence[Waiting]) -> int:
        """Removes messages from an outbox for good; returns how many there still were.

        One that a relay has in hand at this moment is still published.

        Raises:
            NotAllowed: without the right to drop.
        """
        context = self._context
        context.require("drop")
        done = inspector_of(outbox, context.store).drop([each.row for each in messages])
        if done:
            topics = sorted({each.row.topic for each in messages})
            context.audit.record(
                "outbox_drop", ", ".join(topics), None, count=done, outbox=outbox.prefix,
                ids=[each.row.id for each in messages],
            )  # fmt: skip
        return done
