"""What a renewal must know of messages that are settled before their handlers are called."""

from __future__ import annotations

from typing import cast

from contexts import context_of

from qframe.message import Acknowledger, Delivery
from qframe.outcomes import Settled
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.policies.settle_first import SettleFirst


def attempts(count: int) -> list[Attempt]:
    """Attempts of nobody's."""
    nobody = cast("Acknowledger", None)
    return [Attempt(Delivery(f"m{n}", None, None, b""), nobody) for n in range(count)]


def test_what_its_server_did_not_answer_may_be_settled_until_it_is_answered_or_let_go() -> None:
    answers = [[Settled.SETTLED, Settled.AWAY, Settled.AWAY], [Settled.SETTLED]]
    policy = SettleFirst(context_of(), settle_now=lambda _: answers.pop(0), matches=None)
    first, second, third = unit = attempts(3)
    sorting = policy.begin(unit)
    assert sorting.go == [first]
    assert [attempt for attempt, _ in sorting.waiting] == [second, third]
    assert policy.settled == {first.delivery}
    assert set(policy.asked) == {attempt.delivery for attempt in unit}
    assert policy.begin([second]).go == [second]
    assert policy.settled == {first.delivery, second.delivery}
    policy.let_go([third])
    assert sorted(one.id for one in policy.asked) == ["m0", "m1"]
