"""What a pull reads of a stream whose window is long, since a slow message holds its floor."""

from __future__ import annotations

import pytest
from databases import EPOCH, begun, entry

from qframe.drivers.sql import Row, Statement, Transaction
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import PullRequest

COUNT = 1000


def test_a_lost_reply_is_given_again_without_reading_what_is_settled(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = begun(store, "stream", 1)
    store.publish(topic, [entry(topic, n, "k", str(n)) for n in range(COUNT + 20)])
    asks = [PullRequest(0, EPOCH, COUNT, 0)]
    got = store.pull(topic, "g", asks, receipt="r", lease_ms=60_000, max_attempts=5).deliveries
    store.acknowledge(topic, "g", got[1:-1], {0: EPOCH})  # all but the first and the last
    rows, read = Transaction.rows, []

    def counted(self: Transaction, statement: Statement, parameters: Row = ()) -> list[Row]:
        found = rows(self, statement, parameters)
        read.append(len(found))
        return found

    monkeypatch.setattr(Transaction, "rows", counted)
    asks = [PullRequest(0, EPOCH, 10, COUNT - 1)]
    pulled = store.pull(topic, "g", asks, receipt="s", lease_ms=60_000, max_attempts=5)
    assert [one.seq for one in pulled.deliveries] == [*range(COUNT - 1, COUNT + 9)]
    assert max(read) <= 10
