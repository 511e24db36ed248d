"""One delivery in this worker: what its handler sees of it, and its state."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, ClassVar, Final, Protocol

from qframe.errors import AlreadySettled
from qframe.message import Delivery, Message


class AttemptState(Enum):
    """Where an attempt stands.

    `OPEN`: it waits, or its handler runs. `SETTLED_FIRST`: the store was told already, and its
    handler is still to end. `HELD`: its handler has returned, and its user settles it. `ENDING`:
    its effect is being finished. `OWED`: its user has settled it, but its effect could not be
    finished yet. `ENDED`: its settlement is on its way. `LOST`: it is not this worker's any more.
    """

    OPEN = auto()
    SETTLED_FIRST = auto()
    HELD = auto()
    ENDING = auto()
    OWED = auto()
    ENDED = auto()
    LOST = auto()


_OPEN: Final = AttemptState.OPEN
_SETTLED_FIRST: Final = AttemptState.SETTLED_FIRST
_HELD: Final = AttemptState.HELD
_ENDED: Final = AttemptState.ENDED


class _DeliverySlot(Protocol):
    """Where a message keeps its delivery."""

    def __get__(self, message: Any, owner: type | None = None) -> Delivery:
        """Returns the delivery of a message."""


class Attempt(Message, eq=False, weakref=True):
    """A message with the state of its delivery; only the methods here write that state.

        OPEN ──returns──► ENDED          SETTLED_FIRST ──returns──► ENDED
          ├──hold──► HELD ──begin_ending──┐
          └──begin_ending──► ENDING ◄─────┘
                               ├──close──► ENDED
                               ├──owe──► OWED (its handler runs still)
                               └──renew──► OPEN (it is handled, or finished, again)

    `lose` leads from OPEN, HELD and OWED to LOST. A user may settle an attempt
    from any thread while its handler returns, so `hold`, `begin_ending`, `owe` and `leave` are
    called under the lock of `ManualAcks`. An attempt that only one thread can reach needs no lock.

    Attributes:
        delivery: its delivery, which a message does not show to its user.
        state: where it stands.
        effect: its claim under an idempotent checker.
        overdue: whether its handler has run for longer than `timeout=`.
        returned: whether its handler has returned, of one that is ending.
        is_suspect: whether a batch of its has failed whose parts may have to wait, so that it is
            tried alone: gathered with others again, it would make them fail in their turn.
    """

    delivery: ClassVar[_DeliverySlot] = vars(Message)["_delivery"]
    state: AttemptState = _OPEN
    effect: Any = None
    overdue: bool = False
    returned: bool = False
    is_suspect: bool = False

    @property
    def settled(self) -> bool:
        """Whether nobody may settle it any more."""
        return self.state is not _OPEN and self.state is not _HELD

    @property
    def is_open(self) -> bool:
        """Whether its handler is to be called, or to end."""
        return self.state is _OPEN or self.state is _SETTLED_FIRST

    # Its handler.

    def returns(self) -> bool:
        """Ends it with its handler's return; false if it is late, ended, or its user's to end."""
        if self.auto_ack and self.state is _OPEN and not self.overdue:
            self.state = _ENDED
            return True
        return False

    def settle_first(self) -> None:
        """The store has settled it, before its handler is called."""
        self.state = _SETTLED_FIRST

    def hold(self) -> bool:
        """Leaves it to its user, if nobody has ended it yet."""
        if self.state is not _OPEN:
            return False
        self.state = _HELD
        return True

    def leave(self) -> AttemptState:
        """Notes that its handler has ended; returns where it stands."""
        self.returned = True
        return self.state

    def retry_here(self, *, auto_ack: bool) -> None:
        """Begins anew, in this worker, at its handler's wish."""
        self.local_retries: int = self.local_retries + 1
        self.auto_ack: bool = auto_ack

    def suspect(self) -> None:
        """Has it tried alone from now on."""
        self.is_suspect = True

    def renew(self, *, auto_ack: bool) -> None:
        """Begins anew, in this worker, unless it has ended."""
        if self.state in (AttemptState.ENDING, AttemptState.OWED):
            self.state = _OPEN
        self.returned = False
        self.auto_ack = auto_ack
        if self.overdue:
            self.overdue = self.cancelled = False

    # Its end.

    def return_to_end(self) -> bool:
        """Begins to end it with its handler's return; false as of `returns`."""
        if self.state is _SETTLED_FIRST:
            return True
        if self.auto_ack and self.state is _OPEN and not self.overdue:
            self.state = AttemptState.ENDING
            self.returned = True
            return True
        return False

    def begin_ending(self) -> None:
        """Begins to end it.

        Raises:
            AlreadySettled: if it has ended, or is about to.
        """
        if self.state is not _OPEN and self.state is not _HELD:
            raise AlreadySettled(self.id)
        self.returned = self.state is _HELD
        self.state = AttemptState.ENDING

    def owe(self) -> None:
        """Its effect could not be finished; that is tried again when its handler has returned."""
        self.state = AttemptState.OWED

    def close(self) -> None:
        """Ends it: the store is told, or was."""
        self.state = _ENDED

    # Its worker.

    def claim(self, effect: Any) -> None:
        """Gives it a claim, or another one."""
        self.effect = effect

    def expire(self) -> bool:
        """Marks that its handler runs for too long; false if it was marked before."""
        if self.overdue:
            return False
        self.overdue = self.cancelled = True
        return True

    def cancel(self) -> None:
        """Tells its handler to stop."""
        self.cancelled: bool = True

    def lose(self) -> None:
        """It is not this worker's any more, and nobody here may settle it."""
        self.cancelled = True
        if self.state in (_OPEN, _HELD, AttemptState.OWED):
            self.state = AttemptState.LOST
