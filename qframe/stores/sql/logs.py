"""Reading a stream's log by offsets; no group is involved."""

from __future__ import annotations

from qframe.drivers.sql import Transaction
from qframe.message import Delivery
from qframe.stores.sql import window
from qframe.stores.sql.heads import headers_of
from qframe.stores.sql.places import Place


def read_log(
    transaction: Transaction, place: Place, slot: int, first: int, limit: int
) -> list[Delivery]:
    """A slot's messages from an offset on, in order, at most `limit`."""
    rows = transaction.rows(window.READ, (place.slot_number(slot), first, limit))
    return [
        Delivery(id_, key, headers_of(text), body, at_ms, slot, None, seq)
        for seq, id_, key, text, body, at_ms in rows
    ]
