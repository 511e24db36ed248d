"""What clients of the gateway are told of errors."""

from __future__ import annotations

import msgspec
import pytest

from qframe.errors import PublishUnknown
from qframe.web.gateway.callers import TooMuch
from qframe.web.gateway.deliveries import SettleOutcome, SettleReply
from qframe.web.gateway.gateway import GatewayStopped
from qframe.web.gateway.problem_json import problem_of, unsettled


def test_what_may_have_been_stored_is_told_with_its_ids() -> None:
    reply = problem_of(PublishUnknown("orders", ["a", "b"]))
    assert (reply.status_code, msgspec.json.decode(reply.body)["ids"]) == (503, ["a", "b"])


@pytest.mark.parametrize(
    ("error", "again"),
    [(TooMuch("slower", 0.2), "1"), (TooMuch("slower", 3.0), "3"), (GatewayStopped(), "1")],
)
def test_nobody_is_told_to_come_again_at_once(error: Exception, again: str) -> None:
    assert problem_of(error).headers["retry-after"] == again


def test_an_unforeseen_error_keeps_its_text_for_the_log() -> None:
    reply = problem_of(RuntimeError("secret"))
    assert reply.status_code == 500
    assert b"secret" not in reply.body


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (["stale", "stale"], 409), (["elsewhere"], 421), (["stale", "elsewhere"], None),
        (["settled", "stale"], None), (["unknown"], None),
    ],
)  # fmt: skip
def test_a_settlement_is_a_problem_if_nothing_of_it_was_done_for_one_reason(
    outcomes: list[str], status: int | None
) -> None:
    reply = unsettled([SettleReply("r", SettleOutcome(outcome)) for outcome in outcomes])
    assert (None if reply is None else reply.status_code) == status
