"""Bytes as PostgreSQL's text of them, the same under every setting of a session."""

from __future__ import annotations

from typing import Any


def bytes_writer_of(psycopg: Any) -> type:
    """The class by which a connection writes bytes into a COPY.

    The driver's own asks libpq, which doubles backslashes for a quoted string of a session with
    `standard_conforming_strings=off`. COPY has no quoted strings, so such a body would be stored
    as its own escapes.
    """

    class BytesWriter(psycopg.adapt.Dumper):  # type: ignore[misc, name-defined, unused-ignore]
        """Writes bytes in hexadecimal digits."""

        oid = psycopg.adapters.types["bytea"].oid

        def dump(self, obj: bytes) -> bytes:
            return b"\\x" + obj.hex().encode()

    return BytesWriter
