"""What lies in a SQLite file: how much it takes, and the tables of files made before."""

from __future__ import annotations

from pathlib import Path

import pytest
from databases import EPOCH, begun, entry, pulled

from qframe.drivers.sql import Database
from qframe.outcomes import Settled, Verdict
from qframe.stores.sql import migrate, schema
from qframe.stores.sql.store import SqlStore
from qframe.stores.types import Settlement

BODIES, SIZE = 600, 1_500  # more than a quarter of a page


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_file_takes_little_more_than_the_messages_in_it(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "q.db"
    store = SqlStore(f"sqlite:///{file}")
    topic = begun(store, kind)
    empty = pages(store)
    keys = 5 if kind == "ordered" else BODIES  # so that most of them stand behind a head
    bodies = [entry(topic, "x" * SIZE, f"k{n % keys}", f"{n}") for n in range(BODIES)]
    store.publish(topic, bodies)
    taken = pages(store) - empty
    store.close()
    assert taken * 4096 < 1.6 * BODIES * SIZE


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "priority"])
def test_a_file_of_before_is_used_as_it_is(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    with_bodies = [table.name for table in schema.metadata.tables.values() if "body" in table.c]
    database = Database(url)
    made = 0

    def make(transaction: object) -> None:
        nonlocal made
        for text in migrate.sql(database):
            is_one = any(text.startswith(f"CREATE TABLE IF NOT EXISTS {n} ") for n in with_bodies)
            transaction._cursor.execute(f"{text} WITHOUT ROWID" if is_one else text)
            made += is_one

    database.write(make)
    database.close()
    assert made == len(with_bodies) > 0
    store = SqlStore(f"{url}?migrate=no")
    topic = begun(store, kind)
    keys = "abcabdab" if kind == "ordered" else "abcdefgh"
    store.publish(topic, [entry(topic, n, key, f"m{n}") for n, key in enumerate(keys)])
    found: list[bytes] = []
    while given := pulled(store, topic, f"r{len(found)}", position=len(found)).deliveries:
        found += [one.body for one in given]
        verdict = Verdict.DEAD if len(found) == len(keys) else Verdict.ACK
        ends = [
            Settlement(one.slot, one.subject, one.seq, one.receipt, 1, EPOCH, verdict, error="no")
            for one in given
        ]
        assert set(store.settle(topic, "g", ends)) == {Settled.SETTLED}
        assert store.verify(topic) == []
        if verdict is Verdict.DEAD:
            assert store.stats(topic)[0].dead == len(given)
    assert sorted(found) == [str(n).encode() for n in range(len(keys))]
    store.close()


def pages(store: SqlStore) -> int:
    """How many pages the file has that are in use."""

    def look(transaction: object) -> int:
        [total] = transaction._cursor.execute("PRAGMA page_count").fetchone()
        [free] = transaction._cursor.execute("PRAGMA freelist_count").fetchone()
        return int(total - free)

    return store._database.read(look)
