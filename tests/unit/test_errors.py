"""Errors: one root, facts as attributes, and a message that names the value and the remedy."""

from __future__ import annotations

import errno
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from qframe import errors
from qframe.errors import (
    AlreadySettled,
    AnswerLost,
    BadBody,
    BadEffectKey,
    BadInput,
    BadOption,
    BadTopic,
    CheckerUnavailable,
    CommitRefused,
    ConsumerExists,
    CoordinatorUnavailable,
    EffectConflict,
    EffectUnknown,
    Forgotten,
    MessagesGone,
    NotSupported,
    PublishUnknown,
    QFrameError,
    SchemaMismatch,
    StoreFull,
    StoreUnavailable,
    TopicFull,
    TopicMismatch,
    UndecodableBody,
    UnknownGroup,
    UnknownTopic,
    WorkerFailed,
    WorkerLost,
)
from qframe.outcomes import Outcome, Published
from qframe.stores.types import SlotsAway

ALL = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, Exception)
]
MANY = "Too many open files"
REFUSED = BadOption("max_length", -1, "it must be a whole number from 1", "leave it out")


@pytest.mark.parametrize("error", ALL)
def test_every_error_has_the_one_root_and_says_when_it_is_raised(error: type[Exception]) -> None:
    assert issubclass(error, QFrameError)
    opening = "Root of all errors" if error is QFrameError else "Raised "
    assert (error.__doc__ or "").startswith(opening)


def test_bad_input_is_a_value_error_that_names_the_value_as_typed_and_the_remedy() -> None:
    with pytest.raises(ValueError, match="max_length -1") as refused:
        raise REFUSED
    assert str(REFUSED) == "max_length -1: it must be a whole number from 1; leave it out"
    assert refused.value is REFUSED
    facts = (REFUSED.what, REFUSED.value, REFUSED.why, REFUSED.remedy)
    assert facts == ("max_length", -1, "it must be a whole number from 1", "leave it out")
    assert "key 'a b'" in str(BadInput("key", "a b", "why", "remedy"))


def test_a_time_is_shown_as_it_is_written() -> None:
    moment = datetime(2027, 1, 1, tzinfo=UTC)
    assert str(BadInput("at", moment, "why", "remedy")).startswith("at 2027-01-01 00:00:00+00:00:")
    assert str(BadInput("delay", timedelta(hours=2), "why", "it")) == "delay 2:00:00: why; it"


def test_nobody_is_told_to_declare_a_topic_of_qframes_own() -> None:
    said = str(UnknownTopic("qframe.schedules"))
    assert said.endswith("; qframe declares its own topics itself, when they are first used")


@pytest.mark.parametrize(("length", "is_cut"), [(78, False), (79, True), (100_000, True)])
def test_a_long_value_is_cut_in_the_message_and_kept_as_an_attribute(
    length: int, is_cut: bool
) -> None:
    error = BadInput("body", "x" * length, "why", "remedy")
    cut = f"'{'x' * 39}…{'x' * 23}' ({length + 2} characters)"
    shown = cut if is_cut else f"'{'x' * length}'"
    assert str(error) == f"body {shown}: why; remedy"
    assert error.value == "x" * length


@pytest.mark.parametrize(
    ("error", "parent", "facts", "remedy"),
    [
        (UndecodableBody("m-1", "Flight", "no tail"), BadBody, {"value": "m-1"}, "annotation"),
        (UnknownTopic("flights"), BadInput, {"value": "flights"}, "qframe topics declare flights"),
        (UnknownGroup("t", "g", ["a", "b"]), BadInput, {"value": "g"}, "one of these: a, b"),
        (UnknownGroup("t", "g"), BadInput, {"value": "g"}, "one of these: none yet"),
        (TopicMismatch("t", "slots", 16, 8), BadInput, {"value": "t"}, "declare it with slots=16"),
        (NotSupported("push", "use pull"), QFrameError, {"what": "push"}, "use pull"),
        (StoreUnavailable("s", "no"), QFrameError, {"store": "s"}, "no; check that it runs"),
        (StoreUnavailable("s", "Error 24: Too many open files."), QFrameError, {}, "run fewer"),
        (CoordinatorUnavailable("c", "no"), QFrameError, {"coordinator": "c"}, "check that it"),
        (AnswerLost("s", "reset"), StoreUnavailable, {"store": "s"}, "reset"),
        (
            SlotsAway("s", [1], {2: None, 5: None}),
            AnswerLost,
            {"away": {2: None, 5: None}},
            "2, 5 are",
        ),
        (StoreFull("s", "disk full"), StoreUnavailable, {"store": "s"}, "free space"),
        (MessagesGone("t", 3, 5, 8), QFrameError, {"slot": 3, "first": 5, "kept": 8}, "5 to 7 of"),
        (SchemaMismatch("db", 3, 2), QFrameError, {"found": 3, "known": 2}, "upgrade qframe"),
        (SchemaMismatch("db", 3, 13, 13), QFrameError, {"found": 3}, "never released"),
        (CheckerUnavailable("c", "no"), QFrameError, {"checker": "c"}, "wait meanwhile"),
        (EffectUnknown("db", "reset"), CheckerUnavailable, {"checker": "db"}, "reset"),
        (EffectConflict("db", "deadlock"), CheckerUnavailable, {"checker": "db"}, "same order"),
        (CommitRefused("committed"), QFrameError, {"how": "committed"}, "remove"),
        (BadEffectKey("key of", "m-1", "no 'n'", "publish"), BadInput, {"value": "m-1"}, "publish"),
        (AlreadySettled("m-1"), QFrameError, {"message_id": "m-1"}, "auto_ack = False"),
        (Forgotten("m-1"), QFrameError, {"message_id": "m-1"}, "message.ack()"),
        (WorkerLost("m-1"), QFrameError, {"message_id": "m-1"}, "look for what ends workers"),
        (ConsumerExists("t", "g", "why", "it"), BadInput, {"value": "t/g"}, "'t/g': why; it"),
        (WorkerFailed("p", OSError("gone")), QFrameError, {"part": "p"}, "start the worker again"),
        (WorkerFailed("p", OSError(errno.EMFILE, MANY)), QFrameError, {"part": "p"}, "ulimit -n"),
        (WorkerFailed("p", OSError(errno.ENFILE, f"{MANY} in system")), QFrameError, {}, "; start"),
        (BadTopic("slots", 3, "why", "use 16"), BadInput, {"what": "slots"}, "use 16"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_each_error_has_its_facts_and_a_remedy(
    error: QFrameError, parent: type, facts: dict[str, Any], remedy: str
) -> None:
    assert isinstance(error, parent)
    assert {name: getattr(error, name) for name in facts} == facts
    assert remedy in str(error)


def test_what_is_no_bad_input_is_no_value_error() -> None:
    for error in (StoreUnavailable("s", "w"), TopicFull("t", []), PublishUnknown("t", ["m"])):
        assert not isinstance(error, ValueError)


def test_a_full_topic_tells_how_many_were_refused_and_keeps_every_outcome() -> None:
    outcomes = [
        Published("a", Outcome.STORED), Published("b", Outcome.FULL), Published("c", Outcome.FULL),
    ]  # fmt: skip
    error = TopicFull("t", outcomes)
    assert "'t' is full: 2 of 3 messages were refused" in str(error)
    assert (error.topic, error.outcomes) == ("t", outcomes)


@pytest.mark.parametrize(
    ("ids", "shown"), [(["m-1"], "whether m-1 was"), (["a", "b", "c"], "whether a and 2 more was")]
)
def test_an_unknown_publish_names_the_ids_to_publish_again(ids: list[str], shown: str) -> None:
    error = PublishUnknown("t", ids)
    assert shown in str(error)
    assert "same id=" in str(error)
    assert (error.topic, error.ids, error.id) == ("t", ids, ids[0])
