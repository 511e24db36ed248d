"""The contract of a coordinator, and what it needs of a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from qframe.errors import UnknownGroup
from qframe.roster import Roster
from qframe.topic import Topic

CERTAIN: Final = 2 / 3

OnFailure = Callable[[str, BaseException], None]


class Share(NamedTuple):
    """What of a topic and group is one member's.

    Attributes:
        owned: its slots and their epochs.
        leaving: those of them from which nothing more is to be pulled: once nothing of them is in
            hand, the membership is told, and they become another's.
    """

    owned: Mapping[int, str]
    leaving: frozenset[int]


NOTHING: Final = Share({}, frozenset())


class Membership(Protocol):
    """One consumer's part in a (topic, group)."""

    @property
    def paused(self) -> bool:
        """Whether nothing may be pulled now, since the coordinator is not heard."""

    @property
    def certain_until_s(self) -> float:
        """Until when, on the monotonic clock, its slots can be nobody else's.

        Looked at before each handler, since a worker may have stood still between any two steps.
        """

    def certain(self) -> bool:
        """Whether that time has not come yet; if it has, all is dropped when this answers."""

    def share(self) -> Share:
        """What is this member's now; the same object until it changes.

        The consumer takes new slots in the store before it pulls from them.
        """

    def drained(self, slots: Collection[int]) -> None:
        """Told by the consumer that it has nothing in hand of slots that are leaving."""

    def fenced(self, slots: Collection[int]) -> None:
        """Told by the consumer that the store has refused the epochs of these slots."""

    def unknown(self) -> UnknownGroup | None:
        """The error by which the group is gone, once after each; None if it was not met."""

    def leave(self) -> None:
        """Gives all slots up; idempotent. The consumer has settled or given back everything."""


class Coordinator(Protocol):
    """Allots slots to the members of each (topic, group)."""

    def join(self, topic: Topic, group: str, *, on_change: Callable[[], None]) -> Membership:
        """Takes part.

        Args:
            topic: the topic.
            group: the group.
            on_change: called, from any thread, after what `share` answers has changed.

        Raises:
            CoordinatorUnavailable: if it cannot be reached.
        """

    def roster(self, topic: Topic, group: str) -> Roster:
        """Who takes part, and who owns what.

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


class View(NamedTuple):
    """What a seat sees when it looks.

    Attributes:
        wanted: the slots that are to be its own.
        lost: the slots, of those it believed its own, that are not.
    """

    wanted: frozenset[int]
    lost: frozenset[int]


class Seat(Protocol):
    """A member's place at its coordinator: what differs between coordinators.

    All but `wake`, `heard` and `certain_until_s` are called by one thread. They raise
    `Unavailable` errors (`StoreUnavailable`, `CoordinatorUnavailable`), after which `look` is
    called again before anything else.
    """

    @property
    def heard(self) -> bool:
        """Whether the coordinator is heard now."""

    @property
    def certain_until_s(self) -> float:
        """Until when, on the own monotonic clock, nobody else can have been given its slots.

        Two thirds of the session after the last sign of life that was answered had been *sent*. The
        member goes by it once it has let go of what `look` says is lost.
        """

    def look(self, owned: Mapping[int, str]) -> View | None:
        """Shows that the member lives, where that is due, and looks; None if all is as it was."""

    def claim(self, slots: Sequence[int]) -> dict[int, str]:
        """Makes those of the slots its own that are free; answers them with their epochs."""

    def refused(self, slots: Collection[int]) -> None:
        """Hears that the store refuses the epochs under which it has claimed these slots."""

    def let_go(self, slots: Mapping[int, str]) -> None:
        """Frees those of the slots that are its own under these epochs."""

    def leave(self) -> None:
        """Frees all, and takes part no more."""

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until there may be something to look at, or `wake`, or something is due."""

    def wake(self) -> None:
        """Ends a wait, or the next one; from any thread."""


class Ledger(Protocol):
    """What a coordinator without servers of its own needs of the store: see `qframe.stores`."""

    def epochs(self, topic: Topic, group: str) -> dict[int, str]:
        """The epoch of each slot, but for those that cannot be asked now."""

    def heartbeat(self, topic: Topic, group: str, member: str, lease_ms: int) -> int:
        """Joins, or makes the lease end so long from now; answers the roster's version."""

    def roster(self, topic: Topic, group: str, seen: int | None = None) -> Roster | None:
        """The roster; None if its version is still `seen`."""

    def claim(self, topic: Topic, group: str, member: str, epochs: Mapping[int, str]) -> list[int]:
        """Makes free slots the member's; answers those that are its own now."""

    def release_slots(self, topic: Topic, group: str, member: str, slots: Sequence[int]) -> None:
        """Frees the member's slots."""

    def leave(self, topic: Topic, group: str, member: str) -> None:
        """Takes a member out with all it owns."""

    def roster_bell(self, topic: Topic, group: str) -> Bell | None:
        """Rings when the roster may have changed; None where the store cannot tell."""


class Bell(Protocol):
    """What of a store's bell is needed here."""

    def wait(self, timeout_s: float) -> bool:
        """Waits until something may have changed, at most so long."""

    def ring(self) -> None:
        """Ends a wait."""

    def close(self) -> None:
        """Frees what it holds."""
