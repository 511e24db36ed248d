"""Lists as arrays of PostgreSQL: written at once, where psycopg looks at each element by itself."""

from __future__ import annotations

from typing import Any


def list_writer_of(psycopg: Any) -> type:
    """The class by which a connection writes lists of numbers, and lists of texts.

    The statement says which of them the array has, by a cast.
    """

    class ListWriter(psycopg.adapt.Dumper):  # type: ignore[misc, name-defined, unused-ignore]
        """Writes a list as the text of an array."""

        def dump(self, obj: list[Any]) -> bytes:
            if obj and isinstance(obj[0], int):
                return b"{%b}" % ",".join(map(str, obj)).encode()
            text = '","'.join(obj)
            if "\0" in text:
                raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
            if "\\" in text or text.count('"') > 2 * len(obj) - 2:
                escaped = [each.replace("\\", "\\\\").replace('"', '\\"') for each in obj]
                text = '","'.join(escaped)
            return b'{"%b"}' % text.encode(self.connection.info.encoding) if obj else b"{}"

    return ListWriter
