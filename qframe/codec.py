"""Bodies, headers and ids, as they lie in a store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

from qframe.clock import Clock
from qframe.errors import BadBody, BadOption

TAGS_HEADER: Final = "qf-tags"
TYPE_HEADER: Final = "qf-type"
RAW: Final = "bytes"

_BYTES: Final = (bytes, bytearray, memoryview)
_ID = re.compile(r"[A-Za-z0-9_.:/@+=-]{1,128}")
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, in lower case
_encode_json = msgspec.json.Encoder(decimal_format="string").encode
_decode_json = msgspec.json.Decoder().decode


def encode_body(body: Any, max_body: int) -> tuple[bytes, bool]:
    """The body's bytes, and whether they are raw (bytes as published) and not JSON.

    Raises:
        BadBody: if it cannot be encoded, or is larger than `max_body` bytes.
    """
    raw = isinstance(body, _BYTES)
    if raw:
        encoded = bytes(body)
    else:
        try:
            encoded = _encode_json(body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadBody(
                "body", body, f"it cannot be written as JSON ({error})",
                "publish dicts, lists, texts, numbers, dataclasses or msgspec Structs, or bytes",
            ) from error  # fmt: skip
    if len(encoded) > max_body:
        raise BadBody(
            "body", f"of {len(encoded)} bytes", f"max_body is {max_body}",
            "publish a reference to it, or raise max_body",
        )  # fmt: skip
    return encoded, raw


def decode_body(body: bytes, headers: Mapping[str, str] | None) -> Any:
    """The body as builtins, or the bytes that were published.

    Raises:
        msgspec.DecodeError: if it is not JSON.
    """
    if headers is not None and headers.get(TYPE_HEADER) == RAW:
        return body
    return _decode_json(body)


def encode_headers(
    headers: Mapping[str, str] | None, tags: Iterable[str] | None, raw: bool
) -> dict[str, str] | None:
    """The headers as stored: the user's, and ours for tags and raw bodies; None where empty.

    Raises:
        BadOption: if a header or a tag is not a text, or takes a name of ours.
    """
    if not headers and not tags and not raw:
        return None
    stored: dict[str, str] = {}
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            raise BadOption("header", {name: value}, "it is not a text", "use str for both")
        if name.startswith("qf-"):
            raise BadOption("header", name, "names from qf- on are qframe's", "use another name")
        stored[name] = value
    if tags:
        if isinstance(tags, str):
            raise BadOption("tags", tags, "it is one text", f"use tags=[{tags!r}]")
        for tag in (listed := list(tags)):
            if not isinstance(tag, str) or not tag or "," in tag:
                raise BadOption("tag", tag, "it must be a text without a comma", "rename it")
        stored[TAGS_HEADER] = ",".join(listed)
    if raw:
        stored[TYPE_HEADER] = RAW
    return stored


def tags_of(headers: Mapping[str, str] | None) -> tuple[str, ...]:
    """The tags that a message was published with."""
    tags = headers.get(TAGS_HEADER) if headers else None
    return tuple(tags.split(",")) if tags else ()


def checked_id(value: object) -> str:
    """The id itself, if it is one that a message may have.

    Raises:
        BadOption: otherwise.
    """
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise BadOption(
        "id", value, "it has other characters or length",
        "use 1 to 128 of the characters A-Z a-z 0-9 _ . : / @ + = -",
    )  # fmt: skip


def subject_of(key: str | None, body: bytes) -> str:
    """The subject of a message: its key, or the hash of its body, so that equal bodies are one."""
    return key if key is not None else "#" + blake2b(body, digest_size=16).hexdigest()


def new_token(clock: Clock) -> str:
    """20 characters, unique, later ones sorting behind earlier ones: 48 bits of time, 52 random."""
    number = (clock.now_ms() & 0xFFFF_FFFF_FFFF) << 52 | int.from_bytes(os.urandom(7)) >> 4
    return "".join([_ALPHABET[number >> shift & 31] for shift in range(95, -1, -5)])


def batch_mark(token: str) -> str:
    """What the store remembers of a batch of made-up ids `<token>-0`, `<token>-1` and so on.

    One mark for each batch and slot is enough to recognise any of them when it comes again, since
    a slot takes its share of a batch in one atomic step.
    """
    return token + "-*"


@lru_cache(maxsize=1024)
def batch_mark_of(message_id: str) -> str | None:
    """The mark of the batch to which an id would belong if qframe had made it up."""
    token, dash, _ = message_id.rpartition("-")
    return batch_mark(token) if dash and len(token) == 20 else None
