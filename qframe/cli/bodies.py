"""Bodies and headers of messages, as rows of a table, in full, and as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from qframe.codec import decode_body

CUT_AT: Final = 200


def body_as_text(body: bytes, headers: Mapping[str, str] | None, limit: int | None = CUT_AT) -> str:
    """The body as JSON text, or as Python writes bytes; cut where it is too long for a row."""
    value = _decoded(body, headers)
    text = repr(value) if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False)
    return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def body_as_json(body: bytes, headers: Mapping[str, str] | None) -> dict[str, Any]:
    """The body as programs read it; one that is not JSON is given in base64."""
    value = _decoded(body, headers)
    if isinstance(value, bytes):
        return {"body": None, "body_base64": base64.b64encode(value).decode()}
    return {"body": value}


def _decoded(body: bytes, headers: Mapping[str, str] | None) -> Any:
    try:
        return decode_body(body, headers)
    except msgspec.DecodeError:
        return body
