"""What one client of SQS can hold, name and have done, and what the next client gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from sqs_web import ARN, TOKENS, SqsRefused, SqsWeb, rules, sqs_web

from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.topic import Topic
from qframe.web.gateway.sqs import message_verbs, move_verbs, queue_verbs
from qframe.web.gateway.sqs import messages as stored
from qframe.web.gateway.sqs.attributes import MOST_VALUE_BYTES

pytestmark = pytest.mark.gate

ALL = 'publish = ["*"]\nconsume = ["*"]\nadmin = ["*"]'
KEPT = sorted(
    {each for each in vars(stored).values()
     if isinstance(each, str) and each.startswith(stored.PREFIX)} | {"SQS-Sender", "qf-type"}
)  # fmt: skip
DOORS = ("message", "list", "lines", "timer", "edit")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now_ms=SYSTEM_CLOCK.now_ms())


@pytest.fixture
def sqs(tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqsWeb]:
    """`owner` and `other` may do all; what each may hold is little."""
    monkeypatch.setattr(message_verbs, "MOST_ATTEMPTS_KEPT", 2)
    monkeypatch.setattr(message_verbs, "MOST_FIRSTS", 2)
    monkeypatch.setattr(queue_verbs, "MOST_QUEUES", 12)
    monkeypatch.setattr(move_verbs, "MOST_MOVES", 4)
    tokens = rules(
        other=ALL, batcher=f'{ALL}\nrate = "1/h"', shop='publish = ["dead"]\nmax_batch = 1',
        reader='admin = ["dead", "mine"]\npublish = ["mine"]',
        single='admin = ["dead"]\nconsume = ["dead"]\nin_flight = 1',
    )  # fmt: skip
    with sqs_web(tmp_path, tokens=tokens, clock=clock) as sqs:
        sqs.made("dead")
        yield sqs


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[name][0]}"}


def redrive(target: str) -> str:
    return json.dumps({"deadLetterTargetArn": f"{ARN}{target}", "maxReceiveCount": 1})


def moved(sqs: SqsWeb, by: str = "owner", **asked: Any) -> dict[str, Any]:
    """A move out of `dead`, once it has ended."""
    asked = {"SourceArn": f"{ARN}dead", **asked}
    sqs.ask("StartMessageMoveTask", by=by, **asked)

    def ended() -> Any:
        [one, *_] = sqs.ask("ListMessageMoveTasks", SourceArn=asked["SourceArn"])["Results"]
        return None if one["Status"] in ("RUNNING", "CANCELLING") else one

    move: dict[str, Any] = eventually(ended, within=30)
    return move


# Headers that qframe believes.


def reply_of(sqs: SqsWeb, door: str, headers: dict[str, str], by: str) -> tuple[int, str]:
    """The status and the text of the reply to a message with headers, by a door of HTTP."""
    message = {"body": 1, "headers": headers}
    method, path, body = {
        "message": ("POST", "topics/dead/messages", message),
        "list": ("POST", "topics/dead/messages", {"messages": [{"body": 1}, message]}),
        "lines": ("POST", "topics/dead/messages", message),
        "timer": ("PUT", "timers/dead/key", {**message, "delay": "1h"}),
        "edit": ("PATCH", "timers/dead/key", message),
    }[door]
    more = {"content-type": f"application/{'x-ndjson' if door == 'lines' else 'json'}"}
    content = json.dumps(body) + ("\n" if door == "lines" else "")
    reply = sqs.web.request(method, f"/v1/{path}", content=content, headers=bearer(by) | more)
    return reply.status_code, reply.text


@pytest.mark.parametrize("door", DOORS)
def test_no_client_gives_a_header_that_qframe_writes_and_believes(door: str, sqs: SqsWeb) -> None:
    timer = {"body": 1, "delay": "1h"}
    assert sqs.web.put("/v1/timers/dead/key", json=timer, headers=bearer("owner")).is_success
    for name in KEPT:
        status, text = reply_of(sqs, door, {name: "x"}, "owner")
        assert (status, "refused" in text) == ((200, True) if door == "lines" else (400, False))
        assert name in text
        assert "use another name" in text
    assert reply_of(sqs, door, {"color": "red", "traceparent": "x"}, "owner")[0] == 200


def test_an_event_carries_no_header_that_qframe_writes_and_believes(sqs: SqsWeb) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
    binary = {f"ce-{name}": value for name, value in event.items()} | {"sqs-sender": "owner"}
    reply = sqs.web.post("/v1/topics/dead/messages", content=b"1", headers=bearer("shop") | binary)
    assert reply.status_code == 200, reply.text
    [one] = sqs.received("dead")
    assert one["Attributes"]["SenderId"] == "qframe"
    structured = bearer("shop") | {"content-type": "application/cloudevents+json"}
    reply = sqs.web.post("/v1/topics/dead/messages", json={**event, "sqs-sender": "owner"},
                         headers=structured)  # fmt: skip
    assert reply.status_code == 400


def test_the_author_of_a_message_does_not_choose_where_a_move_brings_it(sqs: SqsWeb) -> None:
    sqs.made("jobs", RedrivePolicy=redrive("dead"))
    sqs.made("victim")
    for headers, status in (({"sqs-dead-from": "victim"}, 400), ({}, 200)):
        assert reply_of(sqs, "message", headers, "shop")[0] == status
    move = moved(sqs)
    assert (move["Status"], move["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert sqs.received("victim") == []


# Where messages may be led.


@pytest.mark.parametrize("by", ["reader", "single"])
def test_who_leads_messages_elsewhere_may_read_them_there_and_write_here(
    by: str, sqs: SqsWeb
) -> None:
    """`reader` may publish into `mine` and not read `dead`; `single` the other way round."""
    sqs.made("mine")
    sqs.made("jobs", RedrivePolicy=redrive("dead"))
    sqs.sent("dead", "secret")
    with pytest.raises(SqsRefused, match="AccessDenied"):
        moved(sqs, by, DestinationArn=f"{ARN}mine")
    policy = {"RedrivePolicy": redrive("mine")}
    with pytest.raises(SqsRefused, match="AccessDenied"):
        sqs.ask("SetQueueAttributes", by=by, QueueUrl="dead", Attributes=policy)
    assert sqs.received("mine") == []
    assert moved(sqs, DestinationArn=f"{ARN}mine")["ApproximateNumberOfMessagesMoved"] == 1


def test_moves_are_listed_and_cancelled_by_admins_of_their_source_alone(sqs: SqsWeb) -> None:
    for operation, asked in (
        ("ListMessageMoveTasks", {"SourceArn": f"{ARN}dead"}),
        ("CancelMessageMoveTask", {"TaskHandle": "dead/1"}),
    ):
        with pytest.raises(SqsRefused, match="AccessDenied"):
            sqs.ask(operation, by="shop", **asked)
    sqs.ask("ListMessageMoveTasks", by="single", SourceArn=f"{ARN}dead")


def revoking(sqs: SqsWeb, verb: str, folder: Path) -> Any:
    """A verb of the gateway, after which only the owner has rights."""
    call = getattr(sqs.gateway, verb)
    path = folder / "none.toml"
    path.write_text(rules(other="", shop=""), encoding="utf-8")

    async def once(*given: Any, **more: Any) -> Any:
        found = await call(*given, **more)
        sqs.front._callers._read(path)
        return found

    return once


def test_a_move_ends_with_the_rights_of_who_has_started_it(
    sqs: SqsWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqs.made("jobs", RedrivePolicy=redrive("dead"))
    sqs.made("elsewhere")
    for _ in range(2):
        sqs.sent("dead")
    monkeypatch.setattr(move_verbs, "_AT_ONCE", 1)
    monkeypatch.setattr(sqs.gateway, "publish", revoking(sqs, "publish", tmp_path))
    move = moved(sqs, "other", DestinationArn=f"{ARN}elsewhere")
    assert (move["Status"], move["ApproximateNumberOfMessagesMoved"]) == ("FAILED", 1)
    assert "other has no right to admin 'dead'" in move["FailureReason"]
    assert len(sqs.received("dead", WaitTimeSeconds=1)) == 1


def test_a_stream_of_lines_ends_with_the_right_of_who_sends_it(
    sqs: SqsWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs.gateway, "publish_each", revoking(sqs, "publish_each", tmp_path))
    lines = bearer("shop") | {"content-type": "application/x-ndjson"}
    text = '{"body": 1}\n' * 3
    reply = sqs.web.post("/v1/topics/dead/messages", content=text, headers=lines)
    first, last = reply.text.splitlines()
    assert ("stored" in first, "no right to publish" in last) == (True, True)


# Attempts of a receive.


def taken(sqs: SqsWeb, by: str, attempt: str, most: int = 1) -> list[str]:
    """The ids of what an attempt receives."""
    found = sqs.ask("ReceiveMessage", by=by, QueueUrl="q", MaxNumberOfMessages=most,
                    WaitTimeSeconds=1, ReceiveRequestAttemptId=attempt)  # fmt: skip
    return [one["MessageId"] for one in found.get("Messages", [])]


def test_an_attempt_is_repeated_for_the_client_that_has_made_it_alone(sqs: SqsWeb) -> None:
    sqs.made("q")
    sent = {sqs.sent("q"), sqs.sent("q")}
    first = taken(sqs, "owner", "one")
    assert taken(sqs, "owner", "one") == first
    assert {*first, *taken(sqs, "other", "one")} == sent


def test_a_repeated_attempt_gets_no_more_messages_than_it_asks_for(sqs: SqsWeb) -> None:
    sqs.made("q")
    found: list[str] = []
    while len(found) < 2:  # an answer may have less than there is
        attempt = f"attempt-{sqs.sent('q')}"
        sqs.sent("q")
        found = taken(sqs, "owner", attempt, 10)
    assert taken(sqs, "owner", attempt, 10) == found
    assert taken(sqs, "owner", attempt) == found[:1]


def test_an_attempt_is_repeated_where_there_is_no_room_for_another(sqs: SqsWeb) -> None:
    for _ in range(2):
        sqs.sent("dead")
    first = sqs.received("dead", by="single", WaitTimeSeconds=20, ReceiveRequestAttemptId="one")
    again = sqs.received("dead", by="single", ReceiveRequestAttemptId="one")
    assert [one["MessageId"] for one in again] == [one["MessageId"] for one in first]
    with pytest.raises(SqsRefused, match="RequestThrottled"):
        sqs.received("dead", by="single", ReceiveRequestAttemptId="two")


def test_a_client_with_many_attempts_makes_another_one_forget_none(sqs: SqsWeb) -> None:
    sqs.made("q")
    for _ in range(5):
        sqs.sent("q")
    first = taken(sqs, "other", "one")
    greedy = [taken(sqs, "owner", attempt) for attempt in ("a", "b", "c")]
    assert taken(sqs, "other", "one") == first
    assert [taken(sqs, "owner", attempt) for attempt in ("b", "c")] == greedy[1:]
    assert taken(sqs, "owner", "a") != greedy[0]


def test_a_client_with_many_messages_makes_another_one_forget_no_first_time(
    sqs: SqsWeb, clock: VirtualClock
) -> None:
    def first_time(by: str, queue: str) -> str:
        [one] = sqs.received(queue, by=by, WaitTimeSeconds=1, VisibilityTimeout=0)
        return str(one["Attributes"]["ApproximateFirstReceiveTimestamp"])

    for queue in ("q", "a", "b", "c"):
        sqs.sent(sqs.made(queue))
    times = {queue: first_time("other" if queue == "q" else "owner", queue) for queue in "qabc"}
    clock.advance(1000)
    assert first_time("owner", "q") == times["q"]
    assert first_time("owner", "c") == times["c"]
    assert first_time("owner", "a") != times["a"]


# The rate.


def test_each_request_that_settles_nothing_counts_against_the_rate(sqs: SqsWeb) -> None:
    entry = {"Id": "a", "MessageBody": "x", "ReceiptHandle": "none", "VisibilityTimeout": 1}
    asked = {
        **entry, "QueueUrl": "dead", "QueueName": "dead", "Entries": [entry], "Tags": {"a": "b"},
        "TagKeys": ["a"], "Label": "l", "AWSAccountIds": ["1"], "Actions": ["*"],
        "Attributes": {"DelaySeconds": "0"}, "SourceArn": f"{ARN}dead", "TaskHandle": "dead/1",
        "MaxNumberOfMessages": 1, "ReceiveRequestAttemptId": "one",
    }  # fmt: skip
    sqs.ask("SendMessage", by="batcher", **asked)
    free = set()
    for operation in sqs.front._operations:
        try:
            sqs.ask(operation, by="batcher", **asked)
            free.add(operation)
        except SqsRefused as refused:
            if str(refused) != "RequestThrottled":
                free.add(operation)
    assert free == {
        f"{verb}{batch}" for verb in ("DeleteMessage", "ChangeMessageVisibility")
        for batch in ("", "Batch")
    }  # fmt: skip


def test_what_a_move_publishes_counts_against_the_rate_of_who_has_started_it(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    sqs.made("jobs", RedrivePolicy=redrive("dead"))
    for _ in range(3):
        sqs.sent("dead")
    caller = sqs.front._callers._known[0][1]
    take = caller.wait_s

    def wait_s(messages: int) -> float:
        counted.append(messages)
        return take(messages)

    monkeypatch.setattr(caller, "wait_s", wait_s)
    assert moved(sqs, DestinationArn=f"{ARN}{sqs.made('elsewhere')}")["Status"] == "COMPLETED"
    requests = counted.count(1)
    assert sum(counted) - requests >= 2


# Queues, what is kept of each, and moves.


def test_a_client_that_makes_queues_leaves_room_for_the_next_one(sqs: SqsWeb) -> None:
    def refused(by: str, number: int) -> SqsRefused | None:
        try:
            sqs.ask("CreateQueue", by=by, QueueName=f"{by}-{number}")
        except SqsRefused as error:
            return error
        return None

    def made(by: str) -> int:
        return next(number for number in count() if refused(by, number) is not None)

    assert made("other") == 6  # of 12, of which one is there
    why = refused("other", 6)
    assert (str(why), "its share of 12" in getattr(why, "message", "")) == ("OverLimit", True)
    assert made("owner") >= 1
    sqs.ask("CreateQueue", by="other", QueueName="other-0")  # it is there
    for number in range(6):
        sqs.ask("DeleteQueue", by="other", QueueUrl=f"other-{number}")
    sqs.ask("CreateQueue", by="other", QueueName="other-0")


def test_a_queue_keeps_no_more_of_what_a_client_names_than_it_may(sqs: SqsWeb) -> None:
    long = {"Statement": [], "Id": "x" * MOST_VALUE_BYTES}
    for name, value in [
        ("Policy", json.dumps(long)), ("RedriveAllowPolicy", json.dumps(long)),
        ("KmsMasterKeyId", "x" * (MOST_VALUE_BYTES + 1)),
        ("RedrivePolicy", json.dumps({**json.loads(redrive("dead")), **long})),
    ]:  # fmt: skip
        with pytest.raises(SqsRefused, match="InvalidAttributeValue"):
            sqs.made("big", **{name: value})
    sqs.made("q")
    accounts = [str(each) for each in range(150)]

    def permit(label: str) -> None:
        sqs.ask("AddPermission", QueueUrl="q", Label=label, Actions=["*"], AWSAccountIds=accounts)

    permit("a")
    permit("b")
    with pytest.raises(SqsRefused, match="OverLimit"):
        permit("c")
    assert len(sqs.attributes("q", "Policy")["Policy"]) <= MOST_VALUE_BYTES


def test_a_client_whose_moves_take_long_leaves_room_for_those_of_the_next_one(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_let_go = asyncio.Event()

    async def waiting(*_: object, **__: object) -> list[Any]:
        await is_let_go.wait()
        return []

    for number in range(4):
        sqs.made(f"dead-{number}")
        policy = redrive(f"dead-{number}")
        sqs.ask("CreateQueue", by="other", QueueName=f"jobs-{number}",
                Attributes={"RedrivePolicy": policy})  # fmt: skip

    def start(by: str, number: int) -> str:
        asked = {"SourceArn": f"{ARN}dead-{number}"}
        return str(sqs.ask("StartMessageMoveTask", by=by, **asked)["TaskHandle"])

    with monkeypatch.context() as slow:
        slow.setattr(sqs.gateway, "pull", waiting)
        for number in (0, 1):
            start("other", number)
        with pytest.raises(SqsRefused, match="RequestThrottled"):
            start("other", 2)
        start("owner", 2)
        assert sqs.web.portal is not None
        sqs.web.portal.call(is_let_go.set)
        eventually(lambda: not sqs.gateway._beside)
    start("other", 3)


def test_a_queue_that_is_deleted_leaves_nothing_in_the_gateway(sqs: SqsWeb) -> None:
    sqs.made("q", RedrivePolicy=redrive("dead"))
    sqs.sent("q")
    sqs.received("q")
    sqs.received("dead")
    for name in ("q", "dead"):
        sqs.ask("DeleteQueue", QueueUrl=name)
    service = sqs.front.service
    assert (sqs.gateway._options, list(sqs.gateway.groups()), service._swept_s) == ({}, [], {})


# A queue, and a topic that is not one.


def test_a_topic_is_sent_to_without_a_queue_that_would_collect(sqs: SqsWeb) -> None:
    app = sqs.gateway.app
    for kind in ("delay", "stream", "ordered", "priority"):
        topic = app.declare(Topic(f"of-{kind}", kind=kind, slots=2))  # type: ignore[arg-type]
        app.store.subscribe(topic, "python")
        url = sqs.ask("GetQueueUrl", QueueName=topic.name)["QueueUrl"]
        sqs.sent(url, "alone", MessageGroupId="key")
        entry = {"Id": "a", "MessageBody": "batch", "MessageGroupId": "key"}
        assert "Failed" not in sqs.ask("SendMessageBatch", QueueUrl=url, Entries=[entry])
        assert app.store.groups(topic) == ["python"]
        with app.pull(topic.name, "python") as messages:
            found = []
            while len(found) < 2:
                message = messages.take(timeout=20)
                assert message is not None
                found.append((message.body, message.key))
                message.ack()
        key = "key" if kind in ("ordered", "stream") else None
        assert sorted(found) == [(b"alone", key), (b"batch", key)]
        with pytest.raises(SqsRefused, match="QueueDoesNotExist") as refused:
            sqs.received(url)
        assert "CreateQueue" in refused.value.message
    with pytest.raises(SqsRefused, match="QueueDoesNotExist"):
        sqs.sent("of-nothing")


def test_a_deduplication_id_holds_in_an_ordered_topic_too_and_is_not_needed(sqs: SqsWeb) -> None:
    topic = sqs.gateway.app.declare(Topic("orders", kind="ordered", slots=2))
    sqs.gateway.app.store.subscribe(topic, "python")
    sent = [
        sqs.sent("orders", MessageGroupId="key", **more)
        for more in ({}, {}, {"MessageDeduplicationId": "a"}, {"MessageDeduplicationId": "a"})
    ]
    assert len(set(sent)) == 3
    assert sqs.gateway.app.admin.lag("orders", "python") == 3
    with pytest.raises(SqsRefused, match="MissingParameter"):
        sqs.sent("orders")


@pytest.mark.parametrize("kind", ["stream", "ordered", "priority", "merge"])
def test_a_topic_that_cannot_be_a_queue_says_how_it_is_used(kind: str, sqs: SqsWeb) -> None:
    sqs.gateway.app.declare(Topic("orders", kind=kind, slots=2))  # type: ignore[arg-type]
    with pytest.raises(SqsRefused, match="QueueNameExists") as refused:
        sqs.made("orders")
    assert "sent to it by its name" in refused.value.message
    assert "ends in .fifo" in refused.value.message


def test_a_topic_is_told_of_to_those_alone_who_have_a_right_to_it(sqs: SqsWeb) -> None:
    sqs.gateway.app.declare(Topic("orders", slots=2))
    for operation in ("GetQueueUrl", "SendMessage", "ReceiveMessage"):
        with pytest.raises(SqsRefused, match="AccessDenied"):
            sqs.ask(operation, by="shop", QueueUrl="orders", QueueName="orders", MessageBody="x")
