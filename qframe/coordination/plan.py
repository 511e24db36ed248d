"""The plan that all members of a group share through ZooKeeper."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from qframe.coordination.assignment import assign
from qframe.topic import Topic


class AssignmentPlan(msgspec.Struct):
    """The slots that each member should own.

    A plan without numbers is one for the slots 0, 1, 2 … of a topic that has not grown.

    Attributes:
        members: the names of the members.
        slots: each slot's place in that list.
        base: what is added to a node's czxid to make an epoch.
        step: how far the topic has grown (`Growth.step`).
        numbers: the numbers of the slots, in the same order.
    """

    members: list[str] = []
    slots: list[int] = []
    base: int = 0
    step: int = 0
    numbers: list[int] = []

    @property
    def slot_numbers(self) -> list[int]:
        """The numbers of its slots."""
        return self.numbers or list(range(len(self.slots)))

    def owners(self) -> dict[int, str]:
        """The member of each slot."""
        numbers = self.slot_numbers
        return {slot: self.members[at] for slot, at in zip(numbers, self.slots, strict=True)}

    def shares(self, topic: Topic) -> bool:
        """Whether its slots are those that the topic has now."""
        return self.step == topic.growth.step and self.slot_numbers == list(topic.shared_slots)

    def following(self, topic: Topic, members: Collection[str], salt: str) -> AssignmentPlan:
        """The plan for these members and the topic's slots, with as few moves as possible."""
        names = sorted(members)
        places = {name: place for place, name in enumerate(names)}
        numbers = list(topic.shared_slots)
        assignment = assign(numbers, names, self.owners(), salt)
        order = [places[assignment[slot]] for slot in numbers]
        return AssignmentPlan(
            names, order, self.base, topic.growth.step,
            [] if numbers == list(range(len(numbers))) else numbers,
        )  # fmt: skip


def plan_of(value: bytes) -> AssignmentPlan:
    """The plan as it is kept.

    Raises:
        ValueError: if it is none that this version of qframe can read.
    """
    plan = msgspec.json.decode(value, type=AssignmentPlan)
    if len(plan.slot_numbers) != len(plan.slots):
        raise ValueError("its slots have no numbers")
    if plan.slots and not 0 <= min(plan.slots) <= max(plan.slots) < len(plan.members):
        raise ValueError("its slots have no members")
    return plan
