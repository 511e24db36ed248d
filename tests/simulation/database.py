"""A database of effects: marks in it, or transactions of handlers' changes with their marks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from qframe.errors import AnswerLost, CheckerUnavailable, CommitRefused, StoreUnavailable
from qframe.idempotency.base import Claim, Scope, State, Terms
from simulation.ledger import Ledger
from simulation.scheduler import Process
from simulation.store import Connection

Name = tuple[str, str]
T = TypeVar("T")


class Transaction:
    """Changes of a handler, and the marks that are to be committed with them."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.marks: list[Name] = []
        self.changes: list[Name] = []
        self.ended = False

    @property
    def is_open(self) -> bool:
        """Whether it holds its marks: it ends with its connection."""
        return not (self.ended or self.process.dead)


class Mark:
    """Who has an effect, until when, or that it is done."""

    def __init__(self, token: str, until: float, transaction: Transaction | None) -> None:
        self.token = token
        self.until = until
        self.transaction = transaction
        self.done = False


class SimulatedChecker:
    """The database itself; `connected` gives a worker its checker.

    Args:
        ledger: hears of an effect that happens twice.
        is_transactional: whether handlers change it in the transaction of their claim.

    Attributes:
        effects: how often each effect has happened.
    """

    def __init__(self, ledger: Ledger, *, is_transactional: bool) -> None:
        self._ledger = ledger
        self.is_transactional = is_transactional
        self.marks: dict[Name, Mark] = {}
        self.effects: Counter[Name] = Counter()

    def connected(self, process: Process, connection: Connection) -> CheckerConnection:
        return CheckerConnection(self, process, connection)

    def change(self, group: str, message: Any) -> None:
        """A handler changes something: at once, or when its transaction is committed."""
        claim = message.effect
        if not self.is_transactional:
            self.effects[group, message.id] += 1
        elif claim is not None and claim.transaction is not None:
            claim.transaction.changes.append((group, message.id))

    def claim(self, name: Name, claim: Claim, until: float, now: float, joint: Any) -> None:
        mark = self.marks.get(name)
        if mark is not None and mark.done:
            claim.state = State.DONE
            return
        if mark is not None and mark.token != claim.token:
            taken = mark.until > now if joint is None else mark.transaction.is_open  # type: ignore[union-attr]
            if taken:
                claim.state = State.RUNNING
                return
        self.marks[name] = Mark(claim.token, until, joint)
        claim.state, claim.transaction = State.CLAIMED, joint
        if joint is not None:
            joint.marks.append(name)

    def finish(self, name: Name, claim: Claim) -> bool:
        mark = self.marks.get(name)
        if mark is None or mark.token != claim.token:
            return False
        mark.done = True
        return True

    def release(self, name: Name, claim: Claim) -> bool:
        mark = self.marks.get(name)
        if mark is None or mark.token != claim.token or mark.done:
            return False
        del self.marks[name]
        return True

    def renew(self, name: Name, claim: Claim, until: float) -> bool:
        mark = self.marks.get(name)
        if mark is None or mark.token != claim.token:
            return False
        mark.until = until
        return True

    def commit(self, transaction: Transaction) -> None:
        if not transaction.is_open:
            raise CommitRefused("lost")
        transaction.ended = True
        for name in transaction.marks:
            self.marks[name].done = True
        for name in transaction.changes:
            self.effects[name] += 1
            if self.effects[name] > 1:
                self._ledger._broken(f"the effect of {name[1]} for {name[0]} has happened twice")

    def roll_back(self, transaction: Transaction) -> None:
        if not transaction.ended:
            transaction.ended = True
            for name in transaction.marks:
                if self.marks[name].transaction is transaction:
                    del self.marks[name]


class CheckerConnection:
    """A worker's checker; each call takes time, and its reply may be lost."""

    shown = "simulated"

    def __init__(
        self, database: SimulatedChecker, process: Process, connection: Connection
    ) -> None:
        self._database = database
        self._process = process
        self._connection = connection
        self.is_transactional = database.is_transactional

    def key(self, message: Any) -> str:
        return str(message.id)

    def check(self, terms: Terms) -> None:
        """Remembers everything."""

    def open(self) -> None:
        """Has no tables."""

    def close(self) -> None:
        """Has opened nothing."""

    def sweep(self, limit: int) -> int:
        return 0

    def passing(self, error: BaseException) -> None:
        return None

    def claim_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> None:
        if self.is_transactional:
            for claim in claims:
                self.claim_together(scope, [claim])
            return
        now = self._process.scheduler.now
        database = self._database

        def work() -> None:
            for claim in sorted(claims, key=lambda each: each.key):
                name = scope.group, claim.key
                database.claim(name, claim, now + lease_ms / 1000, now, None)

        try:
            self._ask(work)
        except CheckerUnavailable:
            for claim in claims:
                claim.state = None
            raise

    def claim_together(self, scope: Scope, claims: list[Claim]) -> None:
        joint = Transaction(self._process)
        now, database = self._process.scheduler.now, self._database

        def work() -> None:
            for claim in claims:
                database.claim((scope.group, claim.key), claim, now, now, joint)

        try:
            self._ask(work)
        except CheckerUnavailable:  # its connection is broken, and so it is rolled back
            database.roll_back(joint)
            for claim in claims:
                claim.state = claim.transaction = None
            raise

    def finish_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        database = self._database
        if not self.is_transactional:
            return self._ask(
                lambda: [database.finish((scope.group, each.key), each) for each in claims]
            )
        for transaction in dict.fromkeys(claim.transaction for claim in claims):
            for claim in claims:
                if claim.transaction is transaction:
                    claim.transaction = claim.state = None
            if transaction is None:
                raise CommitRefused("lost")
            try:
                self._ask(partial(database.commit, transaction))
            except CheckerUnavailable:
                database.roll_back(transaction)
                raise
        return [True] * len(claims)

    def release_many(self, scope: Scope, claims: list[Claim]) -> list[bool]:
        database = self._database
        if not self.is_transactional:
            return self._ask(
                lambda: [database.release((scope.group, each.key), each) for each in claims]
            )
        released = [claim.transaction is not None for claim in claims]
        for claim in claims:
            transaction, claim.transaction, claim.state = claim.transaction, None, None
            if transaction is not None:
                database.roll_back(transaction)
        return released

    def renew_many(self, scope: Scope, claims: list[Claim], lease_ms: int) -> list[bool]:
        if self.is_transactional:
            return [claim.transaction is not None for claim in claims]
        until, database = self._process.scheduler.now + lease_ms / 1000, self._database
        return self._ask(
            lambda: [database.renew((scope.group, each.key), each, until) for each in claims]
        )

    def _ask(self, operation: Callable[[], T]) -> T:
        try:
            answer: T = self._connection._call("checker", operation)
        except (StoreUnavailable, AnswerLost) as error:
            raise CheckerUnavailable(self.shown, str(error)) from error
        return answer
