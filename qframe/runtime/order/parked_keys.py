"""The keys that a worker has parked in the store of a group that keeps order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qframe.message import Delivery


class ParkedKeys:
    """The keys of which something was given back, from then until the store knows all of it.

    A pull may reach the store before it has heard what was given back, or of a part of it alone,
    and then it brings of that key what may not go on: more of the line, or what was parked already,
    with a gap where the rest is to stand. So whatever a pull brings of a key is refused, and goes
    back behind it, unless the store had answered all that was given back of the key before the pull
    was asked for.

    A message without a key is never parked, nor is one that left the line before its group kept
    order. Its callers hold a lock.

    Attributes:
        is_held: whether a delivery is its worker's still: what is given back is, until the store
            has answered.
    """

    def __init__(self, is_held: Callable[[Delivery], bool]) -> None:
        self.is_held = is_held
        self._back: dict[str, list[Delivery]] = {}

    def park(self, deliveries: Iterable[Delivery]) -> None:
        """Notes that deliveries are given back."""
        for one in deliveries:
            if one.key is not None and stands_by_key(one):
                self._back.setdefault(one.key, []).append(one)

    def before_pull(self) -> None:
        """Opens the keys of which all is answered: a pull is asked for now."""
        for key, back in list(self._back.items()):
            if held := [one for one in back if self.is_held(one)]:
                self._back[key] = held
            else:
                del self._back[key]

    def sort(self, deliveries: list[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Returns the deliveries that may go on, and those that are to be given back."""
        if not self._back:
            return deliveries, []
        kept: list[Delivery] = []
        refused: list[Delivery] = []
        for one in deliveries:
            is_parked = one.key in self._back and stands_by_key(one)
            (refused if is_parked else kept).append(one)
        self.park(refused)
        return kept, refused


def stands_by_key(delivery: Delivery) -> bool:
    """Whether a delivery goes under its key when it is given back."""
    return delivery.key is not None and delivery.subject != str(delivery.seq)


def of_one_key(delivery: Delivery, others: Iterable[Delivery]) -> list[Delivery]:
    """Returns the others that go back with a delivery, since they are of its key."""
    if not stands_by_key(delivery):
        return []
    return [one for one in others if one.key == delivery.key]


def of_one_run(delivery: Delivery, others: Iterable[Delivery]) -> list[Delivery]:
    """Returns the others that go back with a delivery, since they are of its run."""
    return [
        one for one in others
        if one.receipt == delivery.receipt and one.subject == delivery.subject
    ]  # fmt: skip
