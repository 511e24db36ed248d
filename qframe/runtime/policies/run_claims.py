"""What a run's messages are about, claimed in one call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from qframe.idempotency.base import Checker, Claim, Scope
from qframe.message import Message
from qframe.runtime.executors.pool import Hand
from qframe.runtime.policies.claims import ClaimRenewal


class RunClaims:
    """Claims a run's effects together; where that fails, each message asks for itself.

    Args:
        checker: whose effects; not a transactional one, whose transactions follow each other.
        scope: the consumer's.
        lease_ms: how long a claim lasts.
        claims: renews what is claimed.
        new_claim: makes a message's claim.
        tell: called with an event's name and the message.
    """

    def __init__(
        self,
        *,
        checker: Checker,
        scope: Scope,
        lease_ms: int,
        claims: ClaimRenewal,
        new_claim: Callable[[Message], Claim],
        tell: Callable[[str, Message], None],
    ) -> None:
        self._checker = checker
        self._scope = scope
        self._lease_ms = lease_ms
        self._claims = claims
        self._new_claim = new_claim
        self._tell = tell

    def ask(self, hand: Hand) -> None:
        """Claims; they are taken off the run meanwhile, so that nobody else begins with them."""
        with suppress(IndexError):
            while True:
                hand.asked.append(hand.run.popleft())
        try:
            # Whatever goes wrong here comes again, and is told, when it is a message's turn.
            with suppress(Exception):
                self._claim([one for one in hand.asked if one.effect is None])
        finally:
            hand.run.extend(hand.asked)
            hand.asked = []

    def _claim(self, messages: list[Message]) -> None:
        claimed = [message for message in messages if self._has_key(message)]
        if not claimed:
            return
        claims = [message.effect for message in claimed]
        try:
            self._checker.claim_many(self._scope, claims, self._lease_ms)
        finally:  # it may have claimed some, and raised for others
            for message in claimed:
                if message.effect.is_mine:
                    self._claims.keep(message.effect)
                    self._tell("delivery.claimed", message)

    def _has_key(self, message: Message) -> bool:
        """Gives a message its claim; what its key raises is raised again when it is its turn."""
        with suppress(Exception):
            message.effect = self._new_claim(message)
        return message.effect is not None
