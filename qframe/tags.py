"""Chooses a consumer's messages by the tags that they were published with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from qframe.codec import TAGS_HEADER
from qframe.errors import BadOption

Headers = Mapping[str, str] | None
Matches = Callable[[Headers], bool]

_REMEDY = 'use tags="vip", tags=["vip", "big"] for any of them, or tags=AllOf("vip", "big")'


class AllOf:
    """Wants messages that bear all of these tags: `tags=AllOf("vip", "big")`.

    Args:
        tags: the tags, one or more.

    Raises:
        BadOption: if there is none, or one is not a text without a comma.
    """

    def __init__(self, *tags: str) -> None:
        self.tags: frozenset[str] = checked_tags(tags)

    def matches(self, headers: Headers) -> bool:
        """Whether a message with these headers is wanted."""
        tags = headers.get(TAGS_HEADER) if headers else None
        return tags is not None and self.tags.issubset(tags.split(","))

    def __repr__(self) -> str:
        return f"AllOf({', '.join(map(repr, sorted(self.tags)))})"


class AnyOf:
    """Wants messages that bear one of these tags, or more.

    Args:
        tags: the tags, one or more.

    Raises:
        BadOption: if there is none, or one is not a text without a comma.
    """

    def __init__(self, tags: Collection[str]) -> None:
        self.tags: frozenset[str] = checked_tags(tags)

    def matches(self, headers: Headers) -> bool:
        """Whether a message with these headers is wanted."""
        tags = headers.get(TAGS_HEADER) if headers else None
        return tags is not None and not self.tags.isdisjoint(tags.split(","))

    def __repr__(self) -> str:
        return repr(sorted(self.tags))


Tags = AllOf | AnyOf


def tags_wanted(value: Any) -> Tags | None:
    """A consumer's `tags=`, checked; None where it wants every message.

    Raises:
        BadOption: if it is none of what it may be.
    """
    if value is None or isinstance(value, AllOf | AnyOf):
        return value
    if isinstance(value, str):
        return AnyOf([value])
    if not isinstance(value, list | tuple | set | frozenset):
        raise BadOption("tags", value, "it is not a tag, a list of tags or an AllOf", _REMEDY)
    return AnyOf(value)


def checked_tags(tags: Collection[str]) -> frozenset[str]:
    """The tags, each one that a message may have.

    Raises:
        BadOption: if there is none, or one is not a text without a comma.
    """
    if not tags:
        raise BadOption("tags", tags, "it is empty, so no message would match", _REMEDY)
    for tag in tags:
        if not isinstance(tag, str) or not tag or "," in tag:
            raise BadOption("tags", tag, "a tag must be a string without a comma", _REMEDY)
    return frozenset(tags)
