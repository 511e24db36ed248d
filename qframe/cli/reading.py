"""A command that only reads creates nothing: neither the file of a database nor tables in one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from qframe.drivers.schemes import is_database, is_file
from qframe.errors import BadUrl
from qframe.redaction import shown_url

if TYPE_CHECKING:
    from sqlalchemy import URL

_REMEDY = "declare a topic or start a worker first, or name another store with --store"


def looked_at(url: str, what: str = "store") -> str:
    """The URL under which a store is opened only if all that it needs is there.

    Args:
        url: the store's.
        what: the setting that has it.

    Raises:
        BadUrl: if it is in a file, and that is not there.
    """
    database = _database(url)
    if database is None:
        return url
    refuse_absent(url, what)
    return database.update_query_dict({"migrate": "no"}).render_as_string(hide_password=False)


def refuse_absent(url: str, what: str = "store", remedy: str = _REMEDY) -> None:
    """Sees that the file of a database in a file is there.

    Args:
        url: the database's.
        what: what is kept in it.
        remedy: what to do if it is not there.

    Raises:
        BadUrl: if it is not.
    """
    database = _database(url) if is_file(url) else None
    if database is None:
        return
    path = Path(database.database or "")
    if path.name and path.name != ":memory:" and not path.exists():
        why = f"the database {path.absolute()} does not exist yet"
        raise BadUrl(what, shown_url(url), why, remedy)


def _database(url: str) -> URL | None:
    """The URL of a database; None for other stores, and for what is no URL, which is told later."""
    if not is_database(url):
        return None  # it may name several hosts, which no database's URL does
    from sqlalchemy import exc, make_url  # no other store needs it

    with suppress(exc.ArgumentError, ValueError):
        return make_url(url)
    return None
