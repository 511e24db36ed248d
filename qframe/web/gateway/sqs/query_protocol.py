"""The query protocol: `Action=SendMessage&MessageBody=...` as a form or in the address, XML back.

Names of lists and maps are those of SQS before it spoke JSON: `Attribute.1.Name`, `Tag.2.Key`.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from qframe.web.gateway.sqs.refusals import SqsRefusal

MEDIA_TYPE: Final = "text/xml"
_NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
_MOST_FIELDS: Final = 5000
_DEEPEST: Final = 8

# The lists of a request, and the maps with the names of their two parts.
_LISTS: Final = {
    "AttributeName": "AttributeNames", "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames", "TagKey": "TagKeys",
    "AWSAccountId": "AWSAccountIds", "ActionName": "Actions",
}  # fmt: skip
_MAPS: Final = {
    "Attribute": ("Attributes", "Name", "Value"),
    "MessageAttribute": ("MessageAttributes", "Name", "Value"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name", "Value"),
    "Tag": ("Tags", "Key", "Value"),
}  # fmt: skip
# The parts of an answer: elements of lists, and of maps with their two parts.
_ELEMENTS: Final = {
    "QueueUrls": "QueueUrl", "queueUrls": "QueueUrl", "Messages": "Message",
    "Failed": "BatchResultErrorEntry", "Results": "ListMessageMoveTasksResultEntry",
}  # fmt: skip
_ENTRIES: Final = {name: (element, key, value) for element, (name, key, value) in _MAPS.items()}
_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def fields_of(query: str, body: bytes) -> dict[str, str]:
    """All fields of a request, by name, those of the body first.

    Raises:
        SqsRefusal: if there are too many, or it is no form.
    """
    try:
        text = body.decode()
        pairs = [
            pair for part in (query, text)
            for pair in parse_qsl(
                part, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
            )
        ]  # fmt: skip
    except ValueError:
        raise SqsRefusal("MalformedInput", "The request's body is no form.") from None
    return dict(pairs)


def structured(fields: Mapping[str, str], operation: str) -> dict[str, Any]:
    """The fields of a request as the JSON protocol has them; numbers are texts still."""
    tree: dict[str, Any] = {}
    for name, value in fields.items():
        place, parts = tree, name.split(".")
        if len(parts) > _DEEPEST:
            raise SqsRefusal("MalformedInput", "A parameter's name has too many parts.")
        for part in parts[:-1]:
            below = place.setdefault(part, {})
            if not isinstance(below, dict):
                raise SqsRefusal("MalformedInput", f"{name} is both a value and a structure.")
            place = below
        place[parts[-1]] = value
    shaped = _shaped(tree, f"{operation}RequestEntry")
    if operation == "CreateQueue" and "Tags" in shaped:
        shaped["tags"] = shaped.pop("Tags")
    return shaped


def _shaped(tree: Mapping[str, Any], entry: str) -> dict[str, Any]:
    shaped: dict[str, Any] = {}
    for name, value in tree.items():
        if name in _LISTS:
            shaped[_LISTS[name]] = _numbered(value)
        elif name == entry:
            shaped["Entries"] = [
                _shaped(each, entry) for each in _numbered(value) if isinstance(each, dict)
            ]
        elif name in _MAPS:
            named, key, of = _MAPS[name]
            shaped[named] = {
                each[key]: each.get(of, "")
                for each in _numbered(value)
                if isinstance(each, dict) and isinstance(each.get(key), str)
            }
        else:
            shaped[name] = value
    return shaped


def _numbered(value: Any) -> list[Any]:
    """The members of a list in the order of their numbers; one without a number is the only one."""
    if not isinstance(value, dict):
        return [value]
    if not all(name.isascii() and name.isdigit() and len(name) < 6 for name in value):
        return [value]
    return [value[name] for name in sorted(value, key=int)]


def answer_of(operation: str, answer: Mapping[str, Any], request_id: str) -> bytes:
    """The body of an answer."""
    inside = "".join(_elements(operation, answer))
    result = f"<{operation}Result>{inside}</{operation}Result>" if inside or answer else ""
    return _document(
        f'<{operation}Response xmlns="{_NAMESPACE}">{result}<ResponseMetadata>'
        f"<RequestId>{request_id}</RequestId></ResponseMetadata></{operation}Response>"
    )


def refusal_of(refusal: SqsRefusal, request_id: str) -> bytes:
    """The body of a refusal."""
    return _document(
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>{refusal.fault}</Type>'
        f"<Code>{refusal.code}</Code><Message>{_text(refusal.message)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    )


def _document(inside: str) -> bytes:
    return f'<?xml version="1.0"?>{inside}'.encode()


def _elements(operation: str, answer: Mapping[str, Any]) -> Iterable[str]:
    for name, value in answer.items():
        if isinstance(value, Mapping) and name in _ENTRIES:
            element, key, of = _ENTRIES[name]
            for each, inside in value.items():
                yield (
                    f"<{element}><{key}>{_text(each)}</{key}>"
                    f"<{of}>{_inside(operation, inside)}</{of}></{element}>"
                )
        elif isinstance(value, list | tuple):
            element = _ELEMENTS.get(name, f"{operation}ResultEntry")
            for each in value:
                yield f"<{element}>{_inside(operation, each)}</{element}>"
        else:
            yield f"<{name}>{_inside(operation, value)}</{name}>"


def _inside(operation: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return "".join(_elements(operation, value))
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(str(value))


def _text(text: str) -> str:
    """A text as XML holds it: a line break that stands alone must not become another one."""
    return escape(_UNWRITABLE.sub("\ufffd", text), {"\r": "&#xD;", '"': "&quot;"})
