"""Bodies, headers and ids, as they lie in a store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat
from math import isfinite
from typing import Any, Final

import msgspec

from qframe.clock import Clock
from qframe.errors import BadBody, BadKey, BadOption
from qframe.models import ModelLost, dumped
from qframe.topic import BEYOND_MS, Kind, Topic, is_encodable

TAGS_HEADER: Final = "qf-tags"
TYPE_HEADER: Final = "qf-type"
SLOT_BASIS_HEADER: Final = "qf-slot-basis"
RAW: Final = "bytes"
MAX_BODY: Final = 262_144
"""The largest body in bytes, where no setting says otherwise."""

_SURROGATE: Final = (
    "it has a lone surrogate, which UTF-8 cannot encode",
    "decode bytes with errors='replace', not with surrogateescape",
)
KEYLESS: Final = "#"  # how the subject of a message without a key begins

_BYTES: Final = (bytes, bytearray, memoryview)
_ID = re.compile(r"[A-Za-z0-9_.:/@+=-]{1,128}")
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, in lower case
_MADE_UP = re.compile(rf"[{_ALPHABET}]{{20}}-[0-9]+")
_TOKEN = re.compile(rf"[{_ALPHABET}]{{20}}(?:-[0-9]+|@.+)?\Z")
_PAIRS: Final = [first + second for first in _ALPHABET for second in _ALPHABET]
# A float in MessagePack of which all bits of the exponent are set: not a number, or infinite.
_find_unwritable = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search
_encode_msgpack = msgspec.msgpack.Encoder(decimal_format="string", enc_hook=dumped).encode
_JSON: Final = msgspec.json.Encoder(decimal_format="string", enc_hook=dumped)
_encode_json, _encode_lines = _JSON.encode, _JSON.encode_lines
_SORTED: Final = msgspec.json.Encoder(decimal_format="string", enc_hook=dumped, order="sorted")
_encode_sorted, _encode_sorted_lines = _SORTED.encode, _SORTED.encode_lines
decode_json: Final = msgspec.json.Decoder().decode


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
        except ModelLost as lost:
            raise BadBody("body", lost.model, lost.why, lost.remedy) from lost
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadBody(
                "body", body, f"it cannot be written as JSON ({error})",
                "publish dicts, lists, strings, numbers, dataclasses, msgspec Structs or pydantic "
                "models, or bytes",
            ) from error  # fmt: skip
    if len(encoded) > max_body:
        raise BadBody(
            "body", f"of {len(encoded)} bytes", f"max_body is {max_body}",
            "publish a reference instead, or raise max_body",
        )  # fmt: skip
    if not raw and b"null" in encoded and not _are_writable([body]):
        _refuse_unwritable(body)
    return encoded, raw


def encode_bodies(bodies: Sequence[Any], max_body: int) -> list[bytes] | None:
    """The bodies as `encode_body` encodes them; None if one is not JSON, or is refused.

    At a third of the cost, and without a word about which one it is: `encode_body` tells that.
    """
    if any(issubclass(kind, _BYTES) for kind in set(map(type, bodies))):
        return None
    try:
        lines = _encode_lines(bodies)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    if b"null" in lines and not _are_writable(bodies):
        return None
    encoded = lines.split(b"\n")
    encoded.pop()  # what is behind the last line
    # JSON on one line has no line break in it, but a user's `msgspec.Raw` may have one.
    if len(encoded) != len(bodies) or max(map(len, encoded), default=0) > max_body:
        return None
    return encoded


def _are_writable(bodies: Sequence[Any]) -> bool:
    """False where a float may be infinite or not a number, for which msgspec writes null.

    Of all ways to find that, this one costs least where there is none.
    """
    try:
        return _find_unwritable(_encode_msgpack(bodies)) is None
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False  # JSON holds more than MessagePack does, such as larger whole numbers


def _refuse_unwritable(body: Any) -> None:
    for place, number in _floats(msgspec.to_builtins(body, enc_hook=dumped), ""):
        if not isfinite(number):
            raise BadBody(
                "body", body, f"JSON cannot hold {number}, found at body{place}",
                "publish None or a string instead",
            )  # fmt: skip


def _floats(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """All floats among builtins, and where they are."""
    if isinstance(value, float):
        yield place, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _floats(each, f"{place}[{name!r}]")
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _floats(each, f"{place}[{number}]")


def body_as_basis(topic: Topic, key: str | None, body: Any, encoded: bytes) -> bytes:
    """The bytes of a body for `basis_of` and `subject_of`; they are not stored.

    Where equal bodies are one subject, their keys and sets are sorted.

    Args:
        topic: the message's topic.
        key: the message's key.
        body: the body; JSON of which nothing else is left as `msgspec.Raw`.
        encoded: the body as it is stored.
    """
    if key is not None or topic.subject != "body" or isinstance(body, _BYTES):
        return encoded
    try:
        if type(body) is not msgspec.Raw:
            return _encode_sorted(body)
    except TypeError:  # a key is no text, as JSON's are
        pass
    try:
        return _encode_sorted(decode_json(encoded))
    except msgspec.DecodeError:
        return encoded


def bodies_as_basis(
    topic: Topic, bodies: Sequence[Any], encoded: Sequence[bytes]
) -> Sequence[bytes]:
    """The bytes of bodies without a key, as `body_as_basis` has them, at a quarter of the cost."""
    if topic.subject != "body":
        return encoded
    try:
        if msgspec.Raw not in set(map(type, bodies)):
            lines = _encode_sorted_lines(bodies).split(b"\n")
            lines.pop()
            if len(lines) == len(bodies):
                return lines
    except TypeError:
        pass
    return list(map(body_as_basis, repeat(topic), repeat(None), bodies, encoded))


def decode_body(body: bytes, headers: Mapping[str, str] | None) -> Any:
    """The body as builtins, or the bytes that were published.

    Raises:
        msgspec.DecodeError: if it is not JSON.
    """
    return body if is_raw(headers) else decode_json(body)


def is_raw(headers: Mapping[str, str] | None) -> bool:
    """Whether a message's body is bytes as published, and not JSON."""
    return headers is not None and headers.get(TYPE_HEADER) == RAW


def why_not_json(text: bytes, error: Exception) -> str:
    """Why a text that msgspec has refused is not JSON.

    Of half a surrogate pair near the end msgspec says that the text is truncated, since it looks
    for the bytes of the other half: with some space behind, it says what is wrong.
    """
    try:
        msgspec.json.decode(text + b" " * 6)
    except msgspec.DecodeError as again:
        return str(again)
    except (UnicodeDecodeError, RecursionError, ValueError):
        pass
    return str(error)


def encode_headers(
    headers: Mapping[str, str] | None, tags: Iterable[str] | None, raw: bool, max_body: int
) -> dict[str, str] | None:
    """The headers as stored: the user's, and ours for tags and raw bodies; None where empty.

    Raises:
        BadOption: if a header or a tag is no text that UTF-8 can hold, or takes a name of ours, or
            all together are larger than `max_body` bytes.
    """
    if not headers and not tags and not raw:
        return None
    if headers and not isinstance(headers, Mapping):
        raise BadOption("headers", headers, "it is not a dict", 'use headers={"name": "value"}')
    stored: dict[str, str] = {}
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadOption("header", {name: value}, "it is not a string", "use str for both")
        if not name:
            raise BadOption("header", {name: value}, "it has no name", "give it one")
        if not (is_encodable(name) and is_encodable(value)):
            raise BadOption("header", {name: value}, *_SURROGATE)
        if name.startswith("qf-"):
            raise BadOption(
                "header", name, "names that begin with qf- are reserved", "use another name"
            )
        stored[name] = value
    if tags:
        if isinstance(tags, str):
            raise BadOption("tags", tags, "it is a single string", f"use tags=[{tags!r}]")
        for tag in (listed := list(tags)):
            if not isinstance(tag, str) or not tag or "," in tag:
                raise BadOption("tag", tag, "it must be a string without a comma", "rename it")
            if not is_encodable(tag):
                raise BadOption("tag", tag, *_SURROGATE)
        stored[TAGS_HEADER] = ",".join(listed)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in stored.items())
    if size > max_body:
        raise BadOption(
            "headers", f"of {size} bytes", f"with tags, they are larger than max_body, {max_body}",
            "put less into them, or raise max_body",
        )  # fmt: skip
    if raw:
        stored[TYPE_HEADER] = RAW
    return stored


def own_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers that a user has given."""
    return {name: value for name, value in (headers or {}).items() if not name.startswith("qf-")}


def tags_of(headers: Mapping[str, str] | None) -> tuple[str, ...]:
    """The tags that a message was published with."""
    tags = headers.get(TAGS_HEADER) if headers else None
    return tuple(tags.split(",")) if tags else ()


def slot_basis_of(headers: Mapping[str, str] | None) -> str | None:
    """The `slot_basis` that a message was published with, if any."""
    return headers.get(SLOT_BASIS_HEADER) if headers else None


def checked_id(value: object) -> str:
    """The id itself, if it is one that a message may have.

    Raises:
        BadOption: otherwise.
    """
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    raise BadOption(
        "id", value, "it has a wrong character or length",
        "use 1 to 128 of the characters A-Z a-z 0-9 _ . : / @ + = -",
    )  # fmt: skip


def basis_of(
    topic: Topic, slot_basis: str | None, key: str | None, body: bytes, named: str | None
) -> bytes:
    """The basis of a message's slot: its `slot_basis`, its key, the id it was given, or its body.

    The body is as `body_as_basis` has it, here and for `subject_of`.

    A slot looks for an id that comes again among its own messages, so one without a key has to come
    to the same slot whatever its body is. The body decides where equal bodies are one subject, and
    for an id that was made up: it comes again, with the same body, when an answer was lost.
    """
    if slot_basis is not None:
        return slot_basis.encode()
    if key is not None:
        return key.encode()
    if named is None or topic.subject == "body" or _MADE_UP.fullmatch(named):
        return body
    return named.encode()


def subject_of(topic: Topic, key: str | None, body: bytes, message_id: str) -> str | None:
    """The subject under which a message is queued; None in a stream.

    It is the key; without one, as the topic says, the hash of the body, so that equal bodies are
    one, or the id, so that each message is for itself. A message that has no id yet gets one, and
    its subject with it, from `Entry.name`.

    Raises:
        BadKey: if the topic is `ordered` and there is no key.
    """
    if not topic.has_subjects or key is not None:
        return key if topic.has_subjects else None
    if topic.kind is Kind.ORDERED:
        raise BadKey(
            "key", None, f"topic {topic.name!r} is ordered by key",
            "give key=, such as an order id, or publish to a stream",
        )  # fmt: skip
    if topic.subject == "id":
        return KEYLESS + message_id
    return KEYLESS + blake2b(body, digest_size=16).hexdigest()


def legible(text: str) -> str:
    """A text as every store takes it: NUL and halves of surrogate pairs are spelt out."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", r"\x00").encode("utf-8", "backslashreplace").decode()


def new_token(clock: Clock) -> str:
    """20 characters, unique, later ones sorting behind earlier ones: 48 bits of time, 52 random."""
    chance = int.from_bytes(os.urandom(7)) >> 4
    # Halves of 50 bits, written out: each publish of one message makes a token.
    a, b = (clock.now_ms() & 0xFFFF_FFFF_FFFF) << 2 | chance >> 50, chance & 0x3_FFFF_FFFF_FFFF
    two = _PAIRS
    return (
        f"{two[a >> 40]}{two[a >> 30 & 1023]}{two[a >> 20 & 1023]}{two[a >> 10 & 1023]}"
        f"{two[a & 1023]}{two[b >> 40]}{two[b >> 30 & 1023]}{two[b >> 20 & 1023]}"
        f"{two[b >> 10 & 1023]}{two[b & 1023]}"
    )


def time_of_token(token: str | None) -> int | None:
    """When a token was made, or the id or receipt that begins with one; None for all else."""
    if token is None or not _TOKEN.match(token):
        return None
    number = 0
    for char in token[:10]:
        number = number << 5 | _ALPHABET.index(char)
    return number >> 2


def batch_mark(token: str) -> str:
    """The store's mark for a batch of generated ids `<token>-0`, `<token>-1` and so on.

    One mark for each batch and slot is enough to recognise any of them when it comes again, since
    a slot takes its share of a batch in one atomic step.
    """
    return token + "-*"


def series_mark(series: str, place: int) -> tuple[str, int]:
    """The store's mark for a series and its last place, and until when it is remembered: for ever.

    No id has the sign with which it begins, and no clock comes to that time, which grows with the
    place: so one mark says of all places of a series which have been.
    """
    return f"#{series}", BEYOND_MS + place


@lru_cache(maxsize=1024)
def batch_mark_of(message_id: str) -> str | None:
    """The mark of the batch to which an id would belong if qframe had made it up."""
    token, dash, _ = message_id.rpartition("-")
    return batch_mark(token) if dash and len(token) == 20 else None
