"""The contracts of a coordinator, and of a store that keeps its sessions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from qframe.errors import UnknownGroup
from qframe.roster import Roster
from qframe.topic import Topic

CERTAIN: Final = 2 / 3

OnFailure = Callable[[str, BaseException], None]


class Assignment(NamedTuple):
    """One member's slots of a topic and group.

    Attributes:
        owned: its slots and their epochs.
        leaving: the owned slots that are being handed over: nothing more is pulled from them, and
            once nothing of them is in flight the consumer reports them as drained.
    """

    owned: Mapping[int, str]
    leaving: frozenset[int]


NOTHING: Final = Assignment({}, frozenset())


class Membership(Protocol):
    """One consumer's part in a (topic, group)."""

    @property
    def paused(self) -> bool:
        """Whether nothing may be pulled now, since the coordinator is out of reach."""

    @property
    def certain_until_s(self) -> float:
        """Until when, on the monotonic clock, no other member can own its slots.

        Checked before each handler, since a worker may freeze between any two steps.
        """

    def certain(self) -> bool:
        """Whether that time has not come yet; once it has, all slots are dropped first."""

    def assignment(self) -> Assignment:
        """This member's slots now; the same object until they change.

        The consumer takes new slots in the store before it pulls from them.
        """

    def drained(self, slots: Collection[int]) -> None:
        """Called by the consumer once nothing is in flight of slots that are leaving."""

    def fenced(self, slots: Collection[int]) -> None:
        """Called by the consumer when it needs new epochs for these slots.

        The store has refused their epochs, or a stream's lease was lost.
        """

    def share(self, topic: Topic) -> None:
        """Shares the slots that the topic has now; from any thread.

        Slots that it has no more are leaving from then on, and new ones are claimed.
        """

    def unknown(self) -> UnknownGroup | None:
        """The error that said the group is gone, once for each; None if there was none."""

    def retire(self) -> None:
        """Wants no slots from now on: all are leaving, and each is freed as soon as it has drained.

        The others may own each of them from then on, while handlers of the rest still run.
        """

    def leave(self) -> None:
        """Gives all slots up; idempotent. The consumer has settled or given back everything."""


class Coordinator(Protocol):
    """Assigns slots to the members of each (topic, group)."""

    def join(self, topic: Topic, group: str, *, on_change: Callable[[], None]) -> Membership:
        """Takes part.

        Args:
            topic: the topic.
            group: the group.
            on_change: called, from any thread, after `assignment` has changed.

        Raises:
            CoordinatorUnavailable: if it cannot be reached.
        """

    def roster(self, topic: Topic, group: str) -> Roster:
        """The members, and the slots that each owns.

        Raises:
            CoordinatorUnavailable: if it cannot be reached.
        """

    def check(self) -> None:
        """Returns if it can be reached.

        Raises:
            CoordinatorUnavailable: if it cannot.
        """

    def close(self) -> None:
        """Leaves everything and frees connections; idempotent."""


class SessionView(NamedTuple):
    """A session's view of the group.

    Attributes:
        wanted: the slots that the member should own.
        lost: the slots that the member believed its own, and does not own.
    """

    wanted: frozenset[int]
    lost: frozenset[int]


class CoordinatorSession(Protocol):
    """A member's session with its coordinator: the part that differs between coordinators.

    All but `share`, `wake`, `heard` and `certain_until_s` are called by one thread. They raise
    `Unavailable` errors (`StoreUnavailable`, `CoordinatorUnavailable`), after which `look` is
    called again before anything else.
    """

    @property
    def heard(self) -> bool:
        """Whether the coordinator is in reach now."""

    @property
    def certain_until_s(self) -> float:
        """Until when, on the own monotonic clock, no other member can have got its slots.

        Two thirds of a session after the last acknowledged sign of life was *sent*. The member
        relies on it once it has dropped the slots that `look` says are lost.
        """

    def look(self, owned: Mapping[int, str]) -> SessionView | None:
        """Gives a sign of life, if one is due, and looks; None if nothing has changed."""

    def claim(self, slots: Sequence[int]) -> dict[int, str]:
        """Claims the slots that are free; returns the claimed ones with their epochs."""

    def refused(self, slots: Collection[int]) -> None:
        """Called when the store refuses the epochs under which it has claimed these slots."""

    def let_go(self, slots: Mapping[int, str]) -> None:
        """Frees the slots that it owns under these epochs."""

    def share(self, topic: Topic) -> bool:
        """Shares the slots that the topic has now, from the next `look` on; from any thread.

        Returns:
            Whether it went by another topic.
        """

    def retire(self) -> None:
        """Tells the others that its slots are to be theirs, each once it is freed; idempotent."""

    def leave(self) -> None:
        """Frees all slots and leaves the group."""

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until something may have changed, or is due, or `wake` is called."""

    def wake(self) -> None:
        """Ends a wait, or the next one; from any thread."""


class LeaseStore(Protocol):
    """The role of a store for a coordinator without servers of its own: see `qframe.stores`."""

    def latest(self, topics: Sequence[Topic]) -> list[Topic | None]:
        """Each topic as declared and grown now."""

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        """The epoch of each slot, but for those that cannot be asked now."""

    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        """Joins, or renews the lease for so long from now; returns the roster's version."""

    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        """The roster; None if its version is still `seen`."""

    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        """Gives free slots to the member; returns the slots of these that it owns now."""

    def release_slots(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        """Frees the member's slots."""

    def retire(self, topic: Topic, group: str, member: str) -> None:
        """Marks a member as one that is to own nothing."""

    def leave(self, topic: Topic, group: str, member: str) -> None:
        """Removes a member and frees its slots."""

    def roster_bell(self, topic: Topic, group: str) -> RosterBell | None:
        """A bell that rings when the roster may have changed; None if the store has none."""


class RosterBell(Protocol):
    """The part of a store's bell that a coordinator uses."""

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long."""

    def ring(self) -> None:
        """Ends a wait."""

    def close(self) -> None:
        """Frees what it holds."""
