"""The protocol of checkers, and its types."""

from __future__ import annotations

from enum import Enum, auto
from itertools import count
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

from qframe.errors import BadOption, CheckerUnavailable
from qframe.idempotency.keys import Key
from qframe.retry import Backoff


class State(Enum):
    """The state that a checker returns for an effect.

    `CLAIMED`: it was absent, and is the asker's now. `DONE`: it was done before. `RUNNING`: another
    one has it in hand.
    """

    CLAIMED = auto()
    DONE = auto()
    RUNNING = auto()


class Scope(NamedTuple):
    """A topic and a group; the same key in another scope is another effect."""

    namespace: str
    topic: str
    group: str


class Tokens:
    """Tokens that nobody else makes, of at most 36 characters: a random part, and a number each.

    To draw each from the system's randomness costs more than all else that a claim needs.
    """

    def __init__(self) -> None:
        self._mine = uuid4().hex[:20]
        self._numbers = count(1)

    def new(self) -> str:
        """Another one; from any thread."""
        return f"{self._mine}-{next(self._numbers):x}"


class Claim:
    """One message's hold on its effect; it belongs to the message, and to no thread.

    Attributes:
        key: the effect's, within its scope.
        token: no other claim has it; who has it may renew, finish and release.
        state: what the checker answered last; None before.
        wait_ms: where another one runs, how long its lease lasts still.
        handled: whether the effect has happened already, and only its mark is missing.
        passes: how often its transaction was to be tried again.
        waits: how often in a row its message has waited for the checker.
        transaction: what the handler's changes are in, under a checker that has one.
    """

    __slots__ = (
        "handled", "key", "passes", "state", "token", "transaction", "wait_ms", "waits",
    )  # fmt: skip

    def __init__(self, key: str, token: str | None = None) -> None:
        self.key: str = key
        self.token: str = token or uuid4().hex
        self.state: State | None = None
        self.wait_ms: int = 0
        self.handled: bool = False
        self.passes: int = 0
        self.waits: int = 0
        self.transaction: Any = None

    @property
    def is_mine(self) -> bool:
        """Whether it was claimed, and is to be finished or released."""
        return self.state is State.CLAIMED


class Terms(NamedTuple):
    """The options of a consumer that concern its checker.

    Attributes:
        lease_ms: how long a claim lasts unless it is renewed.
        longest_ms: how long after its first delivery a message may be delivered last.
    """

    lease_ms: int
    longest_ms: int


class Checker(Protocol):
    """Recognises what was done before. Every method may be called from any thread.

    All but `check` raise `CheckerUnavailable` where the checker's server cannot be asked. Each can
    be repeated: a claim's token makes the second time answer as the first.

    Attributes:
        key: what makes a message's effect key.
        shown: the checker, for people, without a password.
    """

    key: Key
    shown: str

    @property
    def is_transactional(self) -> bool:
        """Whether a claim has a transaction, and finishing commits it."""

    def check(self, terms: Terms) -> None:
        """Raises `BadOption` where it would forget too soon."""

    def open(self) -> None:
        """Makes ready what it needs, its table for one; two at once are fine."""

    def claim_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> None:
        """Asks for effects; sets the state of each claim.

        Where only some could be asked for it raises, and the others have no state.
        """

    def finish_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Marks claimed effects as done; false for those whose claim has passed to another one."""

    def release_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        """Makes claimed effects absent again; false where the claim has passed."""

    def renew_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> list[bool]:
        """Makes claims last longer; false where the claim has passed."""

    def passing(self, error: BaseException) -> CheckerUnavailable | None:
        """Returns the error of the handler's transaction, if the handler should be called again."""

    def sweep(self, limit: int) -> int:
        """Removes up to so many of what may be forgotten; returns how many."""

    def close(self) -> None:
        """Frees what it has opened."""


METHODS: Final = (
    "check", "open", "claim_many", "finish_many", "release_many", "renew_many", "passing",
    "sweep", "close",
)  # fmt: skip


def checked_checker(value: object) -> Checker:
    """The value itself, if it can do what a checker can.

    Raises:
        BadOption: otherwise.
    """
    if isinstance(value, type) or not all(callable(getattr(value, name, None)) for name in METHODS):
        raise BadOption(
            "idempotent_checker", value, "it is not a checker",
            "use a RedisChecker, a DatabaseChecker or a TransactionalChecker, or the name of one "
            "that app.checker(name, …) has registered",
        )  # fmt: skip
    return value  # type: ignore[return-value] # that is what was checked


def check_memory(what: str, kept_ms: int, terms: Terms) -> None:
    """Refuses to forget an effect while its message may still come again.

    Raises:
        BadOption: if what is done is kept for less than that.
    """
    if kept_ms < terms.longest_ms:
        raise BadOption(
            what, f"{kept_ms / 1000:g}s",
            f"retries may deliver a message {terms.longest_ms / 1000:g}s after its "
            "first delivery, when its mark is gone",
            f"use {what}={-(-terms.longest_ms // 1000)}, or fewer attempts or a shorter backoff",
        )  # fmt: skip


def longest_ms(*, backoff: Backoff, max_attempts: int, lease_ms: int) -> int:
    """How long after its first delivery a message may be delivered last, by its backoff.

    Each delivery may end with its worker, a lease later.
    """
    waits = sum(backoff.bound_ms(attempt) for attempt in range(1, max_attempts))
    return waits + max_attempts * lease_ms
