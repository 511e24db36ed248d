"""Chooses the consumers that a worker serves: all, or those of some topics and groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

import msgspec

from qframe.app.qframe import QFrame
from qframe.errors import BadOption
from qframe.runtime.handler.spec import ConsumerSpec


def choose(
    apps: Sequence[QFrame], topics: Collection[str], groups: Collection[str]
) -> list[QFrame]:
    """Has apps serve only the consumers of these topics and groups; all where none are named.

    The groups of the other consumers still collect messages, and outboxes are relayed.

    Returns:
        The apps that have something to serve.

    Raises:
        BadOption: if no consumer has a topic or a group that is named, or none has both.
    """
    everything = [consumer for app in apps for consumer in app.consumers]
    _refuse_unknown("--topic", topics, {each.topic_name for each in everything})
    _refuse_unknown("--group", groups, {each.group for each in everything})

    def is_chosen(consumer: ConsumerSpec) -> bool:
        return (not topics or consumer.topic_name in topics) and (
            not groups or consumer.group in groups
        )

    if everything and not any(is_chosen(each) for each in everything):
        raise BadOption(
            "--group", " ".join(groups), f"no consumer of topic {' '.join(topics)} has this group",
            f"there are: {', '.join(f'{each.topic_name}/{each.group}' for each in everything)}",
        )  # fmt: skip
    for app in apps:
        app.consumers[:] = [
            msgspec.structs.replace(each, is_served=is_chosen(each)) for each in app.consumers
        ]
    return [
        app
        for app in apps
        if app.outboxes or app.leads or any(one.is_served for one in app.consumers)
    ]


def _refuse_unknown(flag: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            there_are = f"there are: {', '.join(sorted(known))}"
            raise BadOption(
                flag, name, "no consumer in these modules uses it",
                f"did you mean {close[0]!r}?" if close else there_are,
            )  # fmt: skip
