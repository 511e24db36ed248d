"""Batches of SQS: what their entries may be, and the answers to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from qframe.web.gateway.deliveries import SettleReply
from qframe.web.gateway.sqs.refusals import (
    SqsRefusal,
    empty_batch,
    repeated_entry_id,
    too_many_entries,
    wrong_entry_id,
    wrong_receipt,
)

MOST_AT_ONCE: Final = 10
_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")


class BatchEntry(Protocol):
    """An entry of a batch."""

    id: str


def check_entries(
    entries: Sequence[BatchEntry], name: str, most: int = MOST_AT_ONCE
) -> None:  # fmt: skip
    """Checks the number and the ids of the entries of a batch.

    Args:
        entries: what they are.
        name: what SQS calls one of them.
        most: how many there may be.

    Raises:
        SqsRefusal: if there are none or too many, or an id is wrong or there twice.
    """
    if not entries:
        raise empty_batch(name)
    if len(entries) > most:
        raise too_many_entries(len(entries), most)
    seen: set[str] = set()
    for entry in entries:
        if not _ENTRY_ID.fullmatch(entry.id):
            raise wrong_entry_id()
        if entry.id in seen:
            raise repeated_entry_id(entry.id)
        seen.add(entry.id)


def settled_batch(
    entries: Sequence[BatchEntry],
    replies: Sequence[SettleReply],
    refused: Callable[[SettleReply], SqsRefusal | None],
    failed: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The answer to a batch of settlements.

    Args:
        entries: those that were settled.
        replies: what came of each.
        refused: says why one was not done.
        failed: the entries that were refused before.
    """
    done: list[dict[str, Any]] = []
    failed = list(failed)
    for entry, reply in zip(entries, replies, strict=True):
        refusal = refused(reply)
        if refusal is None:
            done.append({"Id": entry.id})
        elif refusal.code == "ReceiptHandleIsInvalid":
            failed.append(failed_entry(entry.id, wrong_receipt(reply.receipt)))
        else:
            failed.append(failed_entry(entry.id, refusal))
    return batch_answer(done, failed)


def failed_entry(entry_id: str, refusal: SqsRefusal) -> dict[str, Any]:
    """The entry of an answer that says why one of a batch was not done."""
    return {
        "Id": entry_id, "SenderFault": refusal.of_sender, "Code": refusal.code,
        "Message": refusal.message,
    }  # fmt: skip


def batch_answer(done: list[dict[str, Any]], failed: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer to a batch."""
    answer: dict[str, Any] = {"Successful": done}
    if failed:
        answer["Failed"] = failed
    return answer
