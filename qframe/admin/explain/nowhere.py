"""Says that a message was not found: it is not there, or where it may be was not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from qframe.admin.explain.cause import Cause, Explanation
from qframe.admin.explain.words import moment
from qframe.admin.search import place_behind
from qframe.stores.records import Found, ScanPage, Sought
from qframe.topic import Topic

NOT_THERE: Final = Cause(
    "forgotten",
    "the group does not have it: it is settled, replaced or dropped there, or was published before "
    "the group had subscribed",
    {"published_ms": None},
)
ELSEWHERE: Final = Cause(
    "unknown",
    "in other topics it was looked up by indexes alone; name one to look at its messages",
    {"looked": 0, "complete": False},
)
_FASTER: Final = "give --key, which finds it at once in a queue, or search on from the place"


def not_looked_at(
    topic: Topic, sought: Sought, found: Found, page: ScanPage, groups: Sequence[str]
) -> Iterator[Explanation]:
    """Says of each of some groups that it may have a message, and where to go on."""
    known = next(iter(found.remembered), None)
    when = f"was published at {moment(known.at_ms)}, and " if known else ""
    text = (
        f"it {when}is not among the {page.looked} messages looked at in topic {topic.name}; there "
        f"are more: {_FASTER}"
    )
    for group in groups or (None,):
        yield Explanation(
            topic=topic.name, group=group, state="unknown",
            causes=(Cause("unknown", text, {"looked": page.looked, "complete": False}),),
            id=sought.id, key=sought.key, slot=known.slot if known else None,
            looked=page.looked, place=f"{topic.name}:{page.place}",
        )  # fmt: skip


def cut_off(
    topics: Sequence[Topic], looked_up: int, sought: Sought, *, has_found: bool
) -> Explanation:
    """Says that there was no time to look it up in all topics."""
    last = topics[looked_up - 1].name
    text = (
        f"it was looked up in {looked_up} of {len(topics)} topics, up to {last}: name its topic, "
        "or search on from the place"
    )
    return _not_known(sought, "", text, 0, place_behind(last, has_found=has_found))


def more_of_key(topic: Topic, sought: Sought, page: ScanPage) -> Explanation:
    """Says that a stream may have more messages of a key than those that were met."""
    text = (
        f"there may be more of key {sought.key} in topic {topic.name}, of which {page.looked} "
        "messages were looked at: search on from the place"
    )
    return _not_known(sought, topic.name, text, page.looked, f"{topic.name}:{page.place}")


def unread(streams: Sequence[Topic], sought: Sought) -> Explanation:
    """Says that streams were not looked at for a key that was found in another topic."""
    names = ", ".join(topic.name for topic in streams)
    text = f"not looked at, since streams find a key only message by message: {names}; name one"
    cause = Cause("unknown", text, {"looked": 0, "complete": False})
    return Explanation(topic="", group=None, state="unknown", causes=(cause,), key=sought.key)


def unknown(topics: Sequence[Topic], pages: Sequence[ScanPage], sought: Sought) -> Explanation:
    """Says that no topic has it, or that not all was looked at."""
    name = topics[0].name if len(topics) == 1 else ""
    where = f"topic {name}" if name else f"{len(topics)} topics"
    looked = sum(page.looked for page in pages)
    ends = [
        (topic.name, page.place)
        for topic, page in zip(topics, pages, strict=True)
        if page.place is not None
    ]
    if not ends:
        nowhere = f"{where} has no such" if name else f"none of {where} has such a"
        text = f"{nowhere} message: it was never published there, or is settled and forgotten"
        return _not_known(sought, name, text, looked, None)
    up_to, place = ends[0]
    reached, or_topic = (where, "") if name else (f"{where}, up to {up_to}", "name its topic, ")
    text = (
        f"it is not among the {looked} messages looked at in {reached}; there are more: "
        f"{or_topic}{_FASTER}"
    )
    return _not_known(sought, name, text, looked, f"{up_to}:{place}")


def _not_known(sought: Sought, name: str, text: str, looked: int, place: str | None) -> Explanation:
    """It was not found: it is absent if all was looked at, and unknown otherwise."""
    return Explanation(
        topic=name, group=None, state="absent" if place is None else "unknown",
        causes=(Cause("unknown", text, {"looked": looked, "complete": place is None}),),
        id=sought.id, key=sought.key, slot=sought.slot, offset=sought.offset, looked=looked,
        place=place,
    )  # fmt: skip
