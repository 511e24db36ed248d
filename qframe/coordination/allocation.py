"""Which member should own which slot: a pure function, the same for everybody who asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from zlib import crc32


def allocate(
    slots: int, members: Iterable[str], current: Mapping[int, str], salt: str = ""
) -> dict[int, str]:
    """Gives every slot one member: on average, and moving no more than that needs.

    Each member gets `slots / members`, some of them one more. Whoever has more than that gives the
    highest ones up; those, and what belonged to members that are gone, fill up the others. The odd
    slots stay with those who hold the most. Ties are decided by a hash of salt and member, so that
    the odd slots of many topics are not all one member's.

    Args:
        slots: how many there are.
        members: who takes part, in any order.
        current: whose each slot is now, or was last; gaps and strangers are allowed.
        salt: the topic and group, say.

    Returns:
        The member of each slot; empty if there is no member.
    """
    ranked = sorted(set(members), key=lambda member: (crc32(f"{salt}/{member}".encode()), member))
    if not ranked:
        return {}
    held: dict[str, list[int]] = {member: [] for member in ranked}
    for slot in range(slots):
        owner = current.get(slot)
        if owner in held:
            held[owner].append(slot)
    least, odd = divmod(slots, len(ranked))
    # Only who has more than the least would have to give one up: so it does not matter how far the
    # handing over has come, and who computes this meanwhile finds the same.
    favoured = set(sorted(ranked, key=lambda member: len(held[member]) <= least)[:odd])
    room = {member: least + (member in favoured) for member in ranked}
    allocation = {slot: member for member in ranked for slot in held[member][: room[member]]}
    free = iter([slot for slot in range(slots) if slot not in allocation])
    for member in ranked:
        wanted = room[member] - len(held[member])
        allocation.update(dict.fromkeys(islice(free, max(0, wanted)), member))
    return allocation
