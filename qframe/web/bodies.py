"""Bodies and headers as text: every number as it was written, secrets hidden, cut where too long.

JSON is laid out again without being understood: a number stays the digits that it was, so that a
64-bit integer is exact, and a name that stands twice stands twice. Anything else is shown as text
if it is UTF-8, and as bytes in hexadecimal digits if it is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from qframe.codec import RAW, TYPE_HEADER
from qframe.redaction import STARS, redacted
from qframe.stores.records import Record

MOST_CHARS: Final = 65_536
_MOST_LAID_OUT: Final = 4 * 2**20
_MOST_BYTES: Final = 4096
_SECRET: Final = re.compile(
    r"(?i)passw(or)?d|passphrase|secret|token|api_?-?key|private_?-?key|authorization|credential"
    r"|cookie|card_?-?number|\bcvv\b|\bssn\b|\biban\b"
)

Redact = Callable[[str], bool]
"""Says by the name of a field or header whether its value is hidden."""


def named_like_a_secret(name: str) -> bool:
    """Whether a field or header is named like a password, a token, or the number of a card."""
    return _SECRET.search(name) is not None


@dataclass(frozen=True)
class ShownBody:
    """A body for people.

    Attributes:
        text: the text, cut if it is long.
        is_cut: whether more of it can be had as a file.
        size: the size of the body, in bytes.
        kind: `JSON`, `text` or `bytes`.
    """

    text: str
    is_cut: bool
    size: int
    kind: str


class _Number(str):
    """The digits of a number."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object, in order; a name may stand twice."""


def shown_body(record: Record, redact: Redact, *, most: int | None = MOST_CHARS) -> ShownBody:
    """The body of a message for people; whole if `most` is None."""
    kind, text = _text_of(record.body, record.headers, redact)
    cut = most is not None and len(text) > most
    return ShownBody(text[:most] if cut else text, cut, len(record.body), kind)


def shown_headers(headers: Mapping[str, str] | None, redact: Redact) -> list[tuple[str, str]]:
    """The headers of a message for people."""
    return [
        (name, STARS if redact(name) else redacted(value))
        for name, value in sorted((headers or {}).items())
    ]


def _text_of(body: bytes, headers: Mapping[str, str] | None, redact: Redact) -> tuple[str, str]:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "bytes", _digits(body)
    if (headers or {}).get(TYPE_HEADER) == RAW or len(body) > _MOST_LAID_OUT:
        return "text", redacted(text)
    try:
        value = json.loads(
            text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Pairs
        )  # fmt: skip
        return "JSON", "".join(_laid_out(value, "\n", redact))
    except (ValueError, RecursionError):
        return "text", redacted(text)


def _digits(body: bytes) -> str:
    rows = (body[first : first + 32] for first in range(0, min(len(body), _MOST_BYTES), 32))
    return "\n".join(row.hex(" ", 4) for row in rows)


def _laid_out(value: Any, line: str, redact: Redact) -> Iterator[str]:
    """Pieces of JSON text, a field or item to a line."""
    inner = f"{line}  "
    if isinstance(value, _Pairs) and value:
        for number, (name, field) in enumerate(value):
            yield f"{',' if number else '{'}{inner}{_quoted(name)}: "
            if redact(name):
                yield f'"{STARS}"'
            else:
                yield from _laid_out(field, inner, redact)
        yield f"{line}}}"
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield f"{',' if number else '['}{inner}"
            yield from _laid_out(item, inner, redact)
        yield f"{line}]"
    elif isinstance(value, list):
        yield "{}" if isinstance(value, _Pairs) else "[]"
    elif isinstance(value, _Number):
        yield value
    elif isinstance(value, str):
        yield _quoted(redacted(value))
    else:
        yield json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
