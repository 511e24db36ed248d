"""Assigns slots to members: a pure function, the same for every member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from zlib import crc32


def assign(
    slots: Sequence[int], members: Iterable[str], current: Mapping[int, str], salt: str = ""
) -> dict[int, str]:
    """Assigns every slot to one member: evenly, with as few moves as possible.

    Each member gets `slots / members`, some of them one more. A member with more than that gives up
    its last slots; those, and the slots of members that are gone, go to the others. The odd
    slots stay with the members that hold the most. A hash of salt and member decides ties, so that
    the odd slots of many topics are not all one member's.

    Args:
        slots: the numbers of the slots, in order.
        members: the members, in any order.
        current: the present or last owner of each slot; gaps and unknown members are allowed.
        salt: for example the topic and group.

    Returns:
        The member of each slot; empty if there is no member.
    """
    ranked = sorted(set(members), key=lambda member: (crc32(f"{salt}/{member}".encode()), member))
    if not ranked:
        return {}
    held: dict[str, list[int]] = {member: [] for member in ranked}
    for slot in slots:
        owner = current.get(slot)
        if owner in held:
            held[owner].append(slot)
    least, odd = divmod(len(slots), len(ranked))
    # Only a member with more than the least would have to give one up: so every member computes the
    # same while slots are being handed over.
    favoured = set(sorted(ranked, key=lambda member: len(held[member]) <= least)[:odd])
    room = {member: least + (member in favoured) for member in ranked}
    assignment = {slot: member for member in ranked for slot in held[member][: room[member]]}
    free = iter([slot for slot in slots if slot not in assignment])
    for member in ranked:
        wanted = room[member] - len(held[member])
        assignment.update(dict.fromkeys(islice(free, max(0, wanted)), member))
    return assignment
