"""CloudEvents 1.0 over HTTP as messages, and messages as CloudEvents: binary, structured, batched.

Source: the CloudEvents specification, its JSON event format, its HTTP protocol binding, and its
extension for distributed tracing.

| of the event | of the message |
| --- | --- |
| `data` | the body: JSON, or bytes where `datacontenttype` is none of JSON |
| `data_base64` | the body: bytes, or JSON where `datacontenttype` is one of JSON |
| `source` and `id` | the id, a hash of both: an id is unique for its source alone |
| `partitionkey` | the key |
| `sequence`, where `sequencetype` is `Integer` | the sequence, in `ordered` topics |
| `traceparent`, `tracestate` | headers of these names, as a trace's context is in any message |
| all other attributes | headers `ce-id`, `ce-source`, `ce-type`, `content-type` and so on |

On its way out a message that came as an event has the attributes that it came with. Any other one
has its own id, `/topics/` and its topic as source, the type `qframe.message`, the time at which it
was published, and its key as `partitionkey`. Headers that CloudEvents does not allow as attributes,
by their name or their value, are left out.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from qframe.codec import RAW, TYPE_HEADER, why_not_json
from qframe.errors import BadOption
from qframe.message import Delivery
from qframe.producing.outgoing import Outgoing

STRUCTURED: Final = "application/cloudevents+json"
BATCHED: Final = "application/cloudevents-batch+json"
TRACE: Final = ("traceparent", "tracestate")
"""The headers of W3C's Trace Context, and the attributes of an event that has it."""
_NAME = re.compile(r"[a-z0-9]+")
_JSON_TYPE = re.compile(r"(application|text)/json|[\w.!#$&^-]+/[\w.!#$&^-]+\+json")
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(\s*;[ -~]*)?", re.ASCII)
_ENDS_OF_PLANES = "".join(chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
_NOT_ALLOWED = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_ENDS_OF_PLANES}]")  # in a String
_REQUIRED: Final = ("specversion", "id", "source", "type")
_UNCHANGED: Final = "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_decode, _encode = msgspec.json.decode, msgspec.json.encode


def binary(headers: Mapping[str, str], body: bytes) -> Outgoing:
    """The event of a request whose headers have its attributes.

    Raises:
        BadOption: if it is none.
    """
    attributes: dict[str, Any] = {}
    for name, value in headers.items():
        if name.startswith("ce-"):
            attributes[name[3:]] = _unquoted(name, value)
    content_type = headers.get("content-type")
    if content_type is not None:
        attributes["datacontenttype"] = content_type
    data: Any = body
    if _is_json(content_type) and body:
        data = _json(body, "data")
    elif not body and content_type is None:
        data = None
    return _outgoing(attributes, data)


def structured(body: bytes) -> Outgoing:
    """The event of a request whose body is one in JSON.

    Raises:
        BadOption: if it is none.
    """
    return _event(_json(body, "event"))


def batched(body: bytes, most: int) -> list[Outgoing]:
    """The events of a request whose body is a list of them, in JSON.

    Raises:
        BadOption: if one of them is none, or they are more than `most`.
    """
    events = _json(body, "batch")
    if not isinstance(events, list):
        raise _wrong("batch", events, "it is no list of events")
    if len(events) > most:
        raise _wrong("batch", f"of {len(events)} events", f"it may have {most}")
    return [_event(event) for event in events]


def binary_of(topic: str, delivery: Delivery) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a request that has a message as an event."""
    attributes = _attributes_of(topic, delivery)
    headers = {"content-type": attributes.pop("datacontenttype")}
    headers |= {f"ce-{name}": quote(value, _UNCHANGED) for name, value in attributes.items()}
    return headers, delivery.body


def structured_of(topic: str, delivery: Delivery) -> bytes:
    """A message as an event in JSON."""
    return _encode(_event_of(topic, delivery))


def batched_of(topic: str, deliveries: Sequence[Delivery]) -> bytes:
    """Messages as a list of events in JSON."""
    return _encode([_event_of(topic, delivery) for delivery in deliveries])


def _event_of(topic: str, delivery: Delivery) -> dict[str, Any]:
    event: dict[str, Any] = {**_attributes_of(topic, delivery)}
    if _is_raw(delivery):
        event["data_base64"] = b64encode(delivery.body).decode()
    else:
        event["data"] = msgspec.Raw(delivery.body)
    return event


def _attributes_of(topic: str, delivery: Delivery) -> dict[str, str]:
    headers = delivery.headers or {}
    kind = "application/octet-stream" if _is_raw(delivery) else "application/json"
    named = headers.get("content-type", kind)
    attributes = {"datacontenttype": named if _MEDIA_TYPE.fullmatch(named) else kind}
    own = {
        name[3:]: value for name, value in headers.items()
        if name.startswith("ce-") and _is_attribute(name[3:], value)
    }  # fmt: skip
    own |= {name: headers[name] for name in TRACE if _is_attribute(name, headers.get(name, ""))}
    if all(name in own for name in _REQUIRED):
        return attributes | own
    at = datetime.fromtimestamp(delivery.published_at_ms / 1000, UTC)
    attributes |= {
        "specversion": "1.0", "id": delivery.id, "source": f"/topics/{topic}",
        "type": "qframe.message", "time": at.isoformat(timespec="milliseconds"),
    }  # fmt: skip
    if delivery.key is not None and _is_attribute("partitionkey", delivery.key):
        attributes["partitionkey"] = delivery.key
    return attributes | {name: own[name] for name in TRACE if name in own}


def _is_attribute(name: str, value: str) -> bool:
    """Whether an event may have this attribute beside its data."""
    if not _NAME.fullmatch(name) or name in ("data", "datacontenttype"):
        return False
    if name == "specversion":
        return value == "1.0"
    if name == "time":
        return _is_time(value)
    return value != "" and _NOT_ALLOWED.search(value) is None


def _is_raw(delivery: Delivery) -> bool:
    return (delivery.headers or {}).get(TYPE_HEADER) == RAW


def _event(event: Any) -> Outgoing:
    if not isinstance(event, dict):
        raise _wrong("event", event, "it is no object")
    attributes = {name: value for name, value in event.items() if value is not None}
    data = event.get("data")
    attributes.pop("data", None)
    coded = attributes.pop("data_base64", None)
    if coded is not None:
        if "data" in event:
            raise _wrong("data_base64", "…", "data is given too")
        try:
            data = b64decode(coded, validate=True)
        except (NotBase64, ValueError, TypeError):
            raise _wrong("data_base64", "…", "it is not base64") from None
        if "datacontenttype" in attributes and _is_json(attributes["datacontenttype"]):
            data = _json(data, "data_base64")
    elif isinstance(data, str) and not _is_json(attributes.get("datacontenttype")):
        data = data.encode("utf-8", "surrogatepass")
    return _outgoing(attributes, data)


def _outgoing(attributes: dict[str, Any], data: Any) -> Outgoing:
    headers: dict[str, str] = {}
    for name, value in attributes.items():
        if not _NAME.fullmatch(name):
            raise _wrong("attribute", name, "its name has other characters than a-z and 0-9")
        headers[_header(name)] = _text(name, value)
    for name in _REQUIRED:
        if not headers.get(_header(name)):
            raise _wrong("attribute", name, "it is missing or empty")
    version = headers["ce-specversion"]
    if version != "1.0":
        raise _wrong("specversion", version, "only 1.0 is known here")
    if "ce-time" in headers and not _is_time(headers["ce-time"]):
        raise _wrong("time", headers["ce-time"], "it is no timestamp of RFC 3339")
    named = f"{headers['ce-source']}\0{headers['ce-id']}".encode("utf-8", "surrogatepass")
    item = Outgoing(data, id=f"ce-{sha256(named).hexdigest()[:40]}", headers=headers)
    item.key = headers.get("ce-partitionkey") or None
    if headers.get("ce-sequencetype") == "Integer":
        sequence = headers.get("ce-sequence", "")
        if not (sequence.isascii() and sequence.isdecimal()):
            raise _wrong("sequence", sequence, "it is no number, as sequencetype says")
        item.sequence = int(sequence[:20])
    return item


def _header(name: str) -> str:
    if name in TRACE:
        return name
    return "content-type" if name == "datacontenttype" else f"ce-{name}"


def _text(name: str, value: Any) -> str:
    """An attribute as the specification writes it down."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -(2**31) <= value < 2**31:
        return str(value)
    if isinstance(value, str):
        return value
    raise _wrong(f"attribute {name}", value, "it is no string, number of 32 bits, or boolean")


def _unquoted(name: str, value: str) -> str:
    """The value of a header: percent signs say what ASCII cannot."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise _wrong(f"header {name}", value, "its percent signs are not UTF-8") from None


def _is_time(text: str) -> bool:
    """Whether it is a timestamp of RFC 3339."""
    try:
        at = datetime.fromisoformat(text.replace("z", "Z"))
    except ValueError:
        return False
    return at.tzinfo is not None and "T" in text.upper()


def _is_json(content_type: Any) -> bool:
    if content_type is None:
        return True
    found = str(content_type).partition(";")[0].strip().lower()
    return _JSON_TYPE.fullmatch(found) is not None


def _json(text: bytes, what: str) -> Any:
    try:
        text.decode()
        return _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _wrong(what, "…", f"it is not JSON ({why_not_json(text, error)})") from None


def _wrong(what: str, value: object, why: str) -> BadOption:
    return BadOption(f"CloudEvent's {what}", value, why, "send what CloudEvents 1.0 describes")
