"""The URL schemes of databases, which are asked before any library is loaded.

`dialects.py` has a record for each of them.
"""

from __future__ import annotations

from typing import Final

FILES: Final = ("sqlite",)
SCHEMES: Final = (*FILES, "postgresql", "postgres", "mysql", "mariadb")
EXAMPLES: Final = (
    "sqlite:///file.db, postgresql+psycopg://user@host/name, or mysql+pymysql://user@host/name"
)


def scheme_of(url: str) -> str:
    """A URL's scheme, without the driver that may follow it."""
    return url.partition(":")[0].partition("+")[0].lower()


def is_database(url: str) -> bool:
    """Whether a URL names a database."""
    return scheme_of(url) in SCHEMES


def is_file(url: str) -> bool:
    """Whether a URL names a database in a file."""
    return scheme_of(url) in FILES
