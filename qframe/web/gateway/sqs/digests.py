"""The MD5 sums by which clients see that body and attributes arrived as they were sent.

The rule is SQS's, "Calculating the MD5 message digest for message attributes" in its developer
guide: names in order, each of name, type and value behind its length in four bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import md5
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qframe.web.gateway.sqs.requests import AttributeValue


def md5_of(text: str) -> str:
    """The sum of a body."""
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, AttributeValue]) -> str | None:
    """The sum of attributes; None where there are none."""
    if not attributes:
        return None
    total = md5(usedforsecurity=False)
    for name in sorted(attributes):
        attribute = attributes[name]
        value = attribute.binary_value
        is_binary = value is not None
        if value is None:
            value = (attribute.string_value or "").encode()
        total.update(_counted(name.encode()))
        total.update(_counted(attribute.data_type.encode()))
        total.update(b"\2" if is_binary else b"\1")
        total.update(_counted(value))
    return total.hexdigest()


def _counted(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part
