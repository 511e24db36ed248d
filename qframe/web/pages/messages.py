"""Messages: a bounded search, or the next ones of a group in one state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from qframe.admin.looking import STATES
from qframe.admin.search import Hits
from qframe.stores.records import Record
from qframe.web.desk import Visit
from qframe.web.query import Wanted, wanted_of

SHOWN: Final = 50
LOOK: Final = 5000
"""How many messages one page looks at; the next page goes on from there."""


def facts(visit: Visit) -> dict[str, Any]:
    """The messages that fit the typed words.

    Raises:
        BadOption: if that cannot be understood.
        NotAllowed: if headers, errors or bodies are sought without the right to see them.
    """
    typed = visit.asked("q") or ""
    wanted = wanted_of(typed)
    shown: dict[str, Any] = {"title": "Messages", "typed": typed, "topics": _topics(visit)}
    if wanted.is_nothing:
        return {**shown, "hits": None}
    meanings = wanted.meanings()
    found = []
    for meaning in meanings:
        found.append(_found(visit, meaning))
        if found[-1].records:
            break
    hits = found[-1]
    ends = [
        (typed if len(meanings) == 1 else meaning.text, each.place)
        for meaning, each in zip(meanings, found, strict=False)
        if each.place is not None and (each is hits or not hits.records)
    ]
    return {
        **shown, "hits": hits.records, "looked": sum(each.looked for each in found),
        "ends": ends, "has_more": hits.has_more, "unread": hits.unread, "asked": meaning.text,
        "is_all": all(each.is_all for each in found),
    }  # fmt: skip


def _topics(visit: Visit) -> list[str]:
    return [each.name for each in visit.desk.sampler.look().declared]


def _found(visit: Visit, wanted: Wanted) -> Hits:
    facts = wanted.facts
    topic, group, state = facts.get("topic"), facts.get("group"), facts.get("state")
    if topic and group and state in STATES and len(facts) == 3 and not wanted.asks_inside:
        records = visit.admin.peek(topic, group, states=[state], limit=SHOWN + 1)
        return Hits(records[:SHOWN], 0, None, has_more=len(records) > SHOWN)
    return _searched(visit, wanted, topic, group)


def _searched(visit: Visit, wanted: Wanted, topic: str | None, group: str | None) -> Hits:
    facts = wanted.facts
    hits = visit.admin.search(
        topic, id=facts.get("id"), key=facts.get("key"), tag=facts.get("tag"),
        headers=wanted.headers, error=facts.get("error"), state=facts.get("state"),
        body=wanted.body, limit=SHOWN, look=LOOK, place=visit.asked("from"),
        redact=visit.desk.redact,
    )  # fmt: skip
    if group is not None:
        hits = replace(hits, records=_of_group(hits.records, group))
    return hits


def _of_group(records: list[Record], group: str) -> list[Record]:
    return [each for each in records if each.group == group]
