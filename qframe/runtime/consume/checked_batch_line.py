"""A line of batches whose consumer has an idempotent checker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from qframe.errors import AlreadySettled, CheckerUnavailable, NotSupported
from qframe.idempotency.base import Claim, State
from qframe.message import Message
from qframe.runtime.consume.batch_line import BatchLine
from qframe.runtime.consume.checked_line import MAX_PASSING, RETURN, CheckedLine
from qframe.runtime.executors.batch_pool import BatchHand

STEP: Final = 500


class CheckedBatchLine(BatchLine, CheckedLine):
    """Claims what a batch is about in one call, and finishes it in one.

    What was done before is acknowledged, and not in the list that the handler gets; what another
    one has in hand comes in a later batch.

    Where a batch has one transaction, it is committed when the handler has returned. What
    `message.ack` says meanwhile is kept until then, as the vote of that message: if one of them is
    against it, or not this worker's any more, all is rolled back and the others are tried again.

    Args:
        line: the arguments of `BatchLine` and of `CheckedLine`.
    """

    def __init__(self, **line: Any) -> None:
        transaction = line["options"].batch.transaction
        self._has_transactions = bool(line["checker"].is_transactional)
        self._is_together = self._has_transactions and transaction == "batch"
        self._votes: dict[Message, BaseException | bool | None] = {}
        super().__init__(**line)

    # For the pool.

    def _handle_part(self, hand: BatchHand) -> list[list[Message]]:
        if self._is_together:
            return self._handle_together(hand)
        if self._has_transactions and len(hand.part) > 1:
            return [[message] for message in hand.part]
        hand.part = self._claimed_part(hand.part)
        if handled := [message for message in hand.part if message.effect.handled]:
            hand.part = [message for message in hand.part if not message.effect.handled]
            for message in handled:
                message.settled = True
            self._finish_all(handled)
        hand.part = self._still_here(hand.part)  # claiming may have taken long
        return super()._handle_part(hand) if hand.part else []

    def _handle_together(self, hand: BatchHand) -> list[list[Message]]:
        hand.part = part = self._claimed_together(hand.part)
        if not part:
            return []
        with self._custody.guard:
            self._votes.update(dict.fromkeys(part))
        error = self._call(hand)
        try:
            against = self._count_votes(part)
            if hand.given_up:
                self._drop(part)
                return []
            if self._was_lost(hand, error):
                self._claims.release(_mine(part))
                return [part]
            if error is None and any(not one.auto_ack and not one.settled for one in part):
                error = NotSupported("auto_ack = False in a batch's transaction", RETURN)
            if error is None and not against:
                return self._commit(part)
            return self._rolled_back(part, against, error)
        finally:
            del error  # its traceback leads here, and would keep all messages in a circle

    def _rolled_back(
        self,
        part: list[Message],
        against: dict[Message, BaseException],
        error: BaseException | None,
    ) -> list[list[Message]]:
        """Undoes a batch's transaction; answers in which parts it is tried again."""
        rest = [message for message in part if message not in against]
        if error is None or self._checker.passing(error) is None:
            self._claims.release(_mine(part))
        for message, problem in against.items():
            self._failed(message, problem)
        if error is None:
            return [rest]
        return self._end_badly(rest, error, alone=len(part) == 1)

    # Claiming.

    def _claimed_part(self, part: list[Message]) -> list[Message]:
        """Those whose effects are theirs now; the others are acknowledged, or wait."""
        part = self._with_keys(part)
        asked = {message.effect for message in part if not message.effect.is_mine}
        asking = list(asked)
        for claim in asking:
            claim.state = None
        try:
            for start in range(0, len(asking), STEP):
                self._checker.claim_many(
                    self._scope, asking[start : start + STEP], self._options.lease_ms
                )
        except CheckerUnavailable as error:
            self._wait_all([message for message in part if message.effect.state is None], error)
        except BaseException as error:  # a checker's fault, which must not end a thread
            self._failed_all([message for message in part if message.effect.state is None], error)
        mine = self._sorted_out(part)
        held = set(self._batches.held(mine))
        for message in mine:
            if message.effect in asked and not self._has_transactions:
                self._claims.keep(message.effect)
            if message in held:
                self._set_aside(message, 0)
        here = [message for message in mine if message not in held]
        self._tell_all("delivery.claimed", [one for one in here if one.effect in asked])
        return here

    def _claimed_together(self, part: list[Message]) -> list[Message]:
        """The same, in one transaction that has the marks of those messages and no others."""
        part = self._with_keys(part)
        has_tokens = False
        while part:
            claims = [message.effect for message in part]
            try:
                self._checker.claim_together(self._scope, claims)  # type: ignore[attr-defined]
            except CheckerUnavailable as error:
                self._wait_all(part, error)
                return []
            except BaseException as error:  # a checker's fault, which must not end a thread
                self._failed_all(part, error)
                return []
            part = self._sorted_out(part)
            all_are_mine = all(self._is_mine(message) for message in part)
            aside, wait_s = self._batches.held(part), 0.0
            if all_are_mine and not aside and not has_tokens:
                _, aside, wait_s = self._let_in(part)
                has_tokens = True
            if all_are_mine and not aside:
                self._tell_all("delivery.claimed", part)
                return part
            # The mark of one that is not handled now must not be committed.
            self._claims.release(_mine(part))
            gone = set(aside)
            part = [message for message in part if message not in gone]
            super()._hold_back(aside, wait_s)
            if not all_are_mine:  # claiming may have taken long
                part = self._still_here(part)
        return []

    def _hold_back(self, messages: list[Message], wait_s: float) -> None:
        self._claims.release(_mine(messages))  # before another thread may begin with them
        super()._hold_back(messages, wait_s)

    def _failed_all(self, messages: list[Message], error: BaseException) -> None:
        for message in messages:
            message.settled = False
            self._failed(message, error)

    def _with_keys(self, part: list[Message]) -> list[Message]:
        """Gives messages their claims; of two with the same effect the second one waits."""
        found: dict[str, Message] = {}
        for message in part:
            if message.effect is None:
                try:
                    message.effect = self._new_claim(message)
                except BaseException as error:  # its own fault, and no other one's
                    self._failed(message, error)
                    continue
            if found.setdefault(message.effect.key, message) is not message:
                self._tell("delivery.awaited", message)
                self._wait(message)
        return list(found.values())

    def _sorted_out(self, part: list[Message]) -> list[Message]:
        """Those that are claimed; what was done is acknowledged, what another one has waits."""
        done, mine = [], []
        for message in part:
            state = message.effect.state
            if state is State.DONE:
                self._tell("delivery.duplicate", message)
                message.settled = True
                done.append(message.delivery)
            elif state is State.RUNNING:
                self._tell("delivery.awaited", message)
                self._wait(message)
            elif state is State.CLAIMED:
                message.effect.waits = 0
                mine.append(message)
        self._put(done)
        self._batches.free(done)
        return mine

    # Ending.

    def _end_well(self, part: list[Message]) -> None:
        if self._has_transactions:
            [message] = part
            if self._guarded(message, self._finished):
                message.settled = True
                self._ack([message.delivery])
                self._free(message.delivery)
            return
        done, others = self._to_be_settled(part)
        self._finish_all(done)
        for message in others:
            self._returned(message)

    def _finished(self, message: Message) -> bool:
        if not self._may_finish(message):
            return False
        self._finish(message)
        return True

    def _finish_all(self, messages: list[Message]) -> None:
        """Marks effects as done, and acknowledges their messages."""
        done = []
        for start in range(0, len(messages), STEP):
            step = messages[start : start + STEP]
            claims: list[Claim] = [message.effect for message in step]
            self._tell_all("effect.committing", step)
            for claim in claims:
                claim.handled = True
            try:
                answers = self._checker.finish_many(self._scope, claims)
            except CheckerUnavailable as error:
                self._wait_all(step, error)
                continue
            except BaseException as error:  # a checker's fault, which must not end a thread
                self._failed_all(step, error)
                continue
            for message, kept in zip(step, answers, strict=True):
                if self._is_marked(message, kept):
                    done.append(message)
                else:
                    self._wait(message)
        self._tell_all("effect.committed", done)
        self._ack([message.delivery for message in done])
        self._batches.free([message.delivery for message in done])

    def _commit(self, part: list[Message]) -> list[list[Message]]:
        """Commits a batch's transaction; answers what is to be tried again if it must not be."""
        if not all(self._is_mine(message) for message in part):
            self._claims.release(_mine(part))
            self._tell_all("effect.refused", part)
            cancelled = [message for message in part if message.cancelled]
            self._drop(cancelled)
            return [[message for message in part if not message.cancelled]]
        self._tell_all("effect.committing", part)
        try:
            self._checker.finish_many(self._scope, [message.effect for message in part])
        except CheckerUnavailable as error:
            self._wait_all(part, error)
            return []
        except BaseException as error:  # it counts as the handler's own
            return self._end_badly(part, error)
        with self._custody.guard:
            for message in part:
                message.effect.state = State.DONE
                message.settled = True
        self._tell_all("effect.committed", part)
        deliveries = [message.delivery for message in part]
        self._ack(deliveries)
        self._batches.free(deliveries)
        return []

    def _end_badly(
        self, part: list[Message], error: BaseException, *, alone: bool | None = None
    ) -> list[list[Message]]:
        left = [message for message in part if not message.settled]
        passes = self._checker.passing(error)
        may_pass = not any(one.overdue or one.effect.passes >= MAX_PASSING for one in left)
        if passes is not None and may_pass:
            for message in left:
                message.effect.passes += 1
            self._claims.release(_mine(left))
            self._wait_all(left, passes)
            left = []
        if self._has_transactions:
            self._claims.release(_mine(left))
        again = set(left)
        alone = len(part) == 1 if alone is None else alone
        told = [one for one in part if one.settled or one in again]
        return super()._end_badly(told, error, alone=alone)

    def _let_go(self, message: Message) -> None:
        claim: Claim | None = message.effect
        if claim is not None:
            if self._is_left_to_its_end(message):
                return
            if claim.is_mine and not claim.handled:
                self._claims.let_go([claim])
        super()._let_go(message)

    # For `shutdown`.

    def abandon(self) -> None:
        """Gives back, uncounted, what handlers have in hand still, whatever was said about it."""
        with self._custody.guard:
            for message, vote in self._votes.items():
                if vote is not None:
                    self._votes[message] = None
                    message.settled = False
        super().abandon()

    # For messages.

    def acknowledge(
        self, message: Message, elapsed_s: float | None, error: BaseException | None
    ) -> None:
        """Ends the effect, then settles the message; in a batch's transaction it is a vote.

        Raises:
            AlreadySettled: if it is settled already.
            NotSupported: if the effect's transaction has to be awaited.
        """
        if self._is_together:
            with self._custody.guard:
                if message.settled or message not in self._votes:
                    raise AlreadySettled(message.id)
                self._votes[message] = error or True
                message.settled = True
            if self._events and elapsed_s is not None:
                self._events.emit("delivery.acknowledged", elapsed_s=elapsed_s, **self._where)
        else:
            super().acknowledge(message, elapsed_s, error)

    def _count_votes(self, part: list[Message]) -> dict[Message, BaseException]:
        """Closes the vote; answers who was against. Until the commit nobody is settled."""
        against = {}
        with self._custody.guard:
            for message in part:
                vote = self._votes.pop(message, None)
                if vote is not None:
                    message.settled = False
                if isinstance(vote, BaseException):
                    against[message] = vote
        return against

    # Waiting and telling.

    def _wait_all(self, messages: list[Message], why: CheckerUnavailable) -> None:
        for number, message in enumerate(messages):
            self._wait(message, None if number else why)

    def _tell_all(self, name: str, messages: Iterable[Message]) -> None:
        if self._events:
            for message in messages:
                self._tell(name, message)


def _mine(messages: list[Message]) -> list[Claim]:
    claims = [message.effect for message in messages]
    return [claim for claim in claims if claim is not None and claim.is_mine]
