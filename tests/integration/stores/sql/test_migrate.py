"""Tables are made and brought up to date once, whoever begins, and only where that is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_program import Program
from databases import Together, begun, entry, pulled

from qframe import BadUrl, SchemaMismatch
from qframe.drivers.sql import Database
from qframe.stores.sql.migrate import FIRST, KNOWN
from qframe.stores.sql.store import SqlStore


def does(url: str, *texts: str) -> None:
    """Does behind the store's back what the store never does."""
    database = Database(url)

    def change(transaction: object) -> None:
        for text in texts:
            transaction._cursor.execute(text)

    database.write(change)
    database.close()


@pytest.mark.gate
def test_of_many_who_start_at_once_on_an_empty_database_one_makes_the_tables(url: str) -> None:
    stores: list[SqlStore] = []
    Together(*[lambda: stores.append(SqlStore(url)) for _ in range(6)]).join()
    Together(*[lambda store=store: begun(store, "ordered", 2) for store in stores]).join()
    topic = begun(stores[0], "ordered", 2)
    stores[1].publish(topic, [entry(topic, 1, "k", "a")])
    assert [one.body for one in pulled(stores[2], topic, "r").deliveries] == [b"1"]
    assert stores[3].groups(topic) == ["g"]
    assert len(stores[4].topics()) == 1
    assert stores[5].verify(topic) == []
    for store in stores:
        store.close()


def test_a_migration_that_was_broken_off_anywhere_is_simply_repeated(url: str) -> None:
    store = SqlStore(url)
    topic = begun(store, "stream")
    store.publish(topic, [entry(topic, 1, "k", "a")])
    before = store.stats(topic)
    # As a database that commits with every table leaves it: tables without a version.
    for gone in ([], ["DROP TABLE qframe_numbers"]):
        store.close()
        does(url, "DELETE FROM qframe_version", *gone)
        store = SqlStore(url)
        assert store.stats(topic) == before
    other = begun(store, "delay")
    assert store._ref(other).id > store._ref(topic).id
    store.close()


def test_with_migrate_no_in_the_url_tables_are_only_looked_at(url: str) -> None:
    careful = f"{url}?migrate=no"
    needed = "has no tables of qframe yet; run: qframe store migrate, or name another store$"
    with pytest.raises(SchemaMismatch, match=needed):
        SqlStore(careful)
    SqlStore(url).close()
    store = SqlStore(careful)
    begun(store, "stream")
    store.close()
    with pytest.raises(BadUrl, match=r"migrate=perhaps is not an option; use \?migrate=no"):
        SqlStore(f"{url}?migrate=perhaps")


def test_tables_of_a_later_version_are_refused(url: str) -> None:
    SqlStore(url).close()
    does(url, "UPDATE qframe_version SET version = 99")
    with pytest.raises(SchemaMismatch, match="upgrade qframe"):
        SqlStore(url)


def test_the_statements_that_are_printed_make_the_same_tables_when_they_are_run_by_hand(
    url: str, tmp_path: Path
) -> None:
    database = Database(url)
    database.read_autocommit(lambda it: it.now_ms())
    database.close()
    printed = Program(tmp_path).ok("store", "migrate", "--sql", "--store", url).out
    does(url, *printed.rstrip(";\n").split(";\n"))
    store = SqlStore(f"{url}?migrate=no")
    topic = begun(store, "merge", 2)
    store.publish(topic, [entry(topic, 1, "k", "a")])
    assert store.verify(topic) == []
    store.close()


def test_tables_that_were_never_released_are_refused_by_the_command_too(
    url: str, tmp_path: Path
) -> None:
    SqlStore(url).close()
    does(url, f"UPDATE qframe_version SET version = {FIRST - 1}")
    for flags in ([], ["--check"], ["--sql"]):
        refused = Program(tmp_path).run("store", "migrate", *flags, "--store", url)
        assert (refused.code, "never released" in refused.err, refused.out) == (1, True, "")


def test_the_command_says_what_it_does_and_does_it_once(url: str, tmp_path: Path) -> None:
    program = Program(tmp_path)
    found = program.run("store", "migrate", "--check", "--store", url)
    assert (found.code, "has no tables of qframe yet" in found.err) == (1, True)
    shown = program.ok("store", "migrate", "--sql", "--store", url).out
    assert "CREATE TABLE IF NOT EXISTS qframe_topics" in shown
    first = program.ok("store", "migrate", "--store", url).out
    assert f"version {KNOWN}: all tables" in first
    assert f"at version {KNOWN}" in first
    again = program.ok("store", "migrate", "--store", url).out
    assert again.count("\n") == 1
    assert program.ok("store", "migrate", "--check", "--store", url).code == 0
    assert program.ok("store", "migrate", "--sql", "--store", url).out == ""


def test_a_store_without_tables_has_nothing_to_migrate_and_a_file_that_is_not_there_stays_so(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    refused = program.run("store", "migrate", "--store", "redis://localhost:1")
    assert (refused.code, "without tables" in refused.err) == (1, True)
    absent = tmp_path / "absent.db"
    assert program.run("store", "migrate", "--check", "--store", f"sqlite:///{absent}").code == 1
    assert not absent.exists()
    program.ok("store", "migrate", "--store", f"sqlite:///{absent}")
    assert absent.exists()
