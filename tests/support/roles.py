"""The roles of docs/database-roles.md, made by the page's statements in a database of the test's.

What is `shop` on the page has its own name here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from servers import MariaDbServer, PostgresServer
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

PAGE = Path(__file__).parent.parent.parent / "docs" / "database-roles.md"
REFUSED = re.compile(r"denied|must be owner")
Server = PostgresServer | MariaDbServer


class Right(NamedTuple):
    """One thing that a role may do with one table or sequence."""

    verb: str
    on: str
    role: str


def statements(heading: str, part: int) -> list[str]:
    """The statements of one SQL block under a heading of the page."""
    below = PAGE.read_text(encoding="utf-8").split(f"### {heading}\n")[1].split("\n### ")[0]
    block = re.findall(r"^```sql\n(.*?)^```$", below, re.MULTILINE | re.DOTALL)[part]
    return [" ".join(each.split()) for each in block.split(";") if each.strip()]


def rights(heading: str, part: int, role: str) -> list[Right]:
    """What a block of the page grants to a role on tables and sequences."""
    found = []
    for statement in statements(heading, part):
        parts = re.fullmatch(rf"GRANT (.+) ON (.+) TO (shop_{role}\S*)", statement)
        if parts and "SCHEMA" not in parts[2]:
            verbs, tables = re.split(r", (?![^(]*\))", parts[1]), parts[2].split(", ")
            found += [Right(verb, table, parts[3]) for table in tables for verb in verbs]
    return found


class Shop:
    """A database with the roles of the page."""

    def __init__(self, server: Server, heading: str) -> None:
        self.heading = heading
        self._owner = "root" if isinstance(server, MariaDbServer) else "qframe"
        self.url = server.new_database()
        self.name = self.url.rpartition("/")[2]
        self._administrator = create_engine(self.url)
        self._engines: dict[str, Engine] = {}

    def run(self, statement: str, role: str | None = None) -> None:
        """Runs a statement of the page, as the administrator or as a role."""
        engine = self._administrator if role is None else self.role(role)
        with engine.begin() as connection:
            connection.execute(text(statement.replace("shop", self.name)))

    def grant(self, part: int, *, role: str | None = None) -> None:
        """Runs a block of the page."""
        for statement in statements(self.heading, part):
            self.run(statement, role)

    def give(self, right: Right) -> None:
        """Gives a right back."""
        self.run(f"GRANT {right.verb} ON {right.on} TO {right.role}")

    def take(self, right: Right) -> None:
        """Takes a right away."""
        self.run(f"REVOKE {right.verb} ON {right.on} FROM {right.role}")

    def url_of(self, role: str) -> str:
        """The database's URL for a role."""
        return self.url.replace(f"//{self._owner}@", f"//{self.name}_{role}:secret@")

    def role(self, role: str) -> Engine:
        """An engine of a role's."""
        if role not in self._engines:
            self._engines[role] = create_engine(self.url_of(role))
        return self._engines[role]

    def close(self) -> None:
        """Closes the engines."""
        for engine in (self._administrator, *self._engines.values()):
            engine.dispose()


def is_refused(connection: Connection, statement: str) -> bool:
    """Whether a role may not run a statement; any other error is the test's."""
    try:
        with connection.begin():
            connection.execute(text(statement))
    except DBAPIError as error:
        if not REFUSED.search(str(error.orig)):
            raise
        return True
    return False
