"""`qframe store migrate`: brings the tables of a database to the version of this qframe."""

from __future__ import annotations

from typing import Annotated

from qframe.cli.flags import Config, Store
from qframe.cli.output import say
from qframe.cli.reading import looked_at
from qframe.cli.target import Target
from qframe.drivers.schemes import is_database
from qframe.errors import NotSupported, SchemaMismatch
from qframe.verbs.parameters import option


def migrate(
    check: Annotated[
        bool, option("--check", help="Change nothing; exit code 1 if there is work to do.")
    ] = False,
    sql: Annotated[bool, option("--sql", help="Change nothing; print what would be run.")] = False,
    store: Store = None,
    config: Config = None,
) -> None:
    """Brings the tables of a store in a database up to date.

    A worker or producer that may create tables does this by itself when it starts, unless the
    store's URL says ?migrate=no.
    """
    url = Target(store=store, config=config).settings().store
    if not is_database(url):
        raise NotSupported("migrate for a store without tables", "name a database with --store")
    if check or sql:
        url = looked_at(url)
    from qframe.drivers.sql import Database  # no other command pays for loading these
    from qframe.stores.sql import migrate as tables

    database = Database(url)
    known = tables.KNOWN
    try:
        found = tables.version_of(database)
        if 0 < found < tables.FIRST or (check and not sql and found != known):
            raise SchemaMismatch(database.shown, found, known, tables.FIRST)
        if sql:
            for statement in tables.sql(database, found) if found < known else []:
                say(f"{statement};")
        else:
            for line in [] if check else tables.migrate(database):
                say(line)
            say(f"the tables in {database.shown} are at version {known}")
    finally:
        database.close()
