"""Short words about rosters, so that tests read as sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import Bench, epoch

from qframe.roster import Roster
from qframe.topic import Topic

LEASE_MS = 400
OLD, NEW = epoch(1), epoch(2)


def start(bench: Bench, *members: str, slots: int = 4) -> Topic:
    """A topic with a group, and these members in its roster."""
    topic = bench.topic("stream", "g", slots=slots)
    for member in members:
        bench.store.heartbeat(topic, "g", member, LEASE_MS)
    return topic


def claim(
    bench: Bench, topic: Topic, member: str, *slots: int, under: str = OLD, group: str = "g"
) -> list[int]:
    """What a member claims, under one epoch."""
    return bench.store.claim(topic, group, member, dict.fromkeys(slots, under))


def roster(bench: Bench, topic: Topic, group: str = "g") -> Roster:
    """The whole roster."""
    found = bench.store.roster(topic, group)
    assert found is not None
    return found


def names(bench: Bench, topic: Topic, group: str = "g") -> list[str]:
    """The members' ids, in order."""
    return [member.id for member in roster(bench, topic, group).members]


def owned(bench: Bench, topic: Topic, group: str = "g") -> dict[int, str]:
    """Each owned slot's owner."""
    return {slot: one.member for slot, one in roster(bench, topic, group).owners.items()}


# Each with a step, and whether it changes who takes part or what is whose. Before, "a" and "b" are
# members, "a" owns slots 0 and 1.
STEPS: dict[str, tuple[Callable[[Any, Topic], Any], bool]] = {
    "joining": (lambda s, t: s.heartbeat(t, "g", "c", LEASE_MS), True),
    "renewing": (lambda s, t: s.heartbeat(t, "g", "a", LEASE_MS), False),
    "looking": (lambda s, t: s.roster(t, "g"), False),
    "claiming a free slot": (lambda s, t: s.claim(t, "g", "b", {1: NEW, 2: NEW}), True),
    "claiming another's": (lambda s, t: s.claim(t, "g", "b", {0: NEW, 1: NEW}), False),
    "claiming again": (lambda s, t: s.claim(t, "g", "a", {0: OLD, 1: OLD}), False),
    "claiming one's own under another epoch": (lambda s, t: s.claim(t, "g", "a", {0: NEW}), False),
    "claiming as a stranger": (lambda s, t: s.claim(t, "g", "c", {2: NEW}), False),
    "letting go": (lambda s, t: s.release_slots(t, "g", "a", [1, 2]), True),
    "letting another's go": (lambda s, t: s.release_slots(t, "g", "b", [0, 1, 2]), False),
    "retiring": (lambda s, t: s.retire(t, "g", "a"), True),
    "retiring as a stranger": (lambda s, t: s.retire(t, "g", "c"), False),
    "departing": (lambda s, t: s.leave(t, "g", "b"), True),
    "departing as a stranger": (lambda s, t: s.leave(t, "g", "c"), False),
    "taking the slots themselves": (lambda s, t: s.take(t, "g", {0: epoch(9**9)}), False),
}
