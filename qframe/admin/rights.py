"""Rights: what somebody may do through `app.admin`, and what they are shown of a message.

The verbs themselves check them (`AdminContext.require`), so that no page, route or command can
forget to. A program that uses `app.admin` itself has all rights, as has the CLI.

Without the right to see bodies a record has no body, no headers but its tags, and of its error the
class alone, since an error's text may quote a body. Ids and keys are shown: nothing is found
without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

import msgspec

from qframe.admin.causes import class_in
from qframe.codec import TAGS_HEADER
from qframe.errors import BadOption
from qframe.stores.records import HistoryEntry, Record

Right = Literal["view", "body", "retry", "drop", "seek", "pause", "tune"]
"""`view`: counts, workers, and where messages are. `body`: bodies, headers, errors. `retry`: dead
letters, blocked keys, repairs. `drop`: dead letters, groups and topics, for good. `seek`, `pause`
and `tune`: the verbs of these names."""

ALL_RIGHTS: Final[frozenset[Right]] = frozenset(get_args(Right))
_READING: Final[frozenset[Right]] = frozenset({"view", "body"})
ROLES: Final[Mapping[str, frozenset[Right]]] = {
    "viewer": frozenset({"view"}),
    "reader": _READING,
    "operator": _READING | {"retry", "pause", "tune"},
    "owner": ALL_RIGHTS,
}
"""Each role has the rights of the one before it; an operator has none that loses messages."""


def checked_rights(rights: Iterable[str] | str) -> frozenset[Right]:
    """Rights by the name of a role, or one by one.

    Raises:
        BadOption: if there is no such role or right.
    """
    if isinstance(rights, str):
        if rights not in ROLES:
            raise BadOption(
                "role", rights, "there is no such role", f"use one of {', '.join(ROLES)}"
            )
        return ROLES[rights]
    known: dict[str, Right] = {each: each for each in get_args(Right)}
    given = list(rights)
    for each in given:
        if each not in known:
            raise BadOption(
                "right", each, "there is no such right", f"use some of {', '.join(known)}"
            )
    return frozenset(known[each] for each in given)


def without_body(record: Record) -> Record:
    """A record as somebody sees it who has no right to see bodies."""
    tags = (record.headers or {}).get(TAGS_HEADER)
    return msgspec.structs.replace(
        record, body=b"", headers=None if tags is None else {TAGS_HEADER: tags},
        error=_class_alone(record.error), traceback=None,
    )  # fmt: skip


def without_text(entry: HistoryEntry) -> HistoryEntry:
    """The end of an attempt as somebody sees it who has no right to see bodies."""
    return msgspec.structs.replace(entry, error=_class_alone(entry.error))


def _class_alone(error: str | None) -> str | None:
    return None if error is None else class_in(error) or "error"
