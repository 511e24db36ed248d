"""What may be done with queues of SQS, by whom, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from sqs_web import ARN, TOKENS, SqsRefused, SqsWeb, rules, sqs_web
from starlette.requests import Request

from qframe.errors import UnknownTopic
from qframe.topic import Topic

pytestmark = pytest.mark.gate

ENTRY: dict[str, Any] = {"Id": "a", "ReceiptHandle": "none", "VisibilityTimeout": 1}
RIGHTS: dict[str, tuple[str, dict[str, Any]]] = {
    "SendMessage": ("publish", {"MessageBody": "x"}),
    "SendMessageBatch": ("publish", {"Entries": [{"Id": "a", "MessageBody": "x"}]}),
    "ReceiveMessage": ("consume", {"MaxNumberOfMessages": 11}),
    "DeleteMessage": ("consume", {"ReceiptHandle": "none"}),
    "DeleteMessageBatch": ("consume", {"Entries": [ENTRY]}),
    "ChangeMessageVisibility": ("consume", ENTRY),
    "ChangeMessageVisibilityBatch": ("consume", {"Entries": [ENTRY]}),
    "GetQueueUrl": ("any", {}),
    "GetQueueAttributes": ("any", {}),
    "ListQueueTags": ("any", {}),
    "ListDeadLetterSourceQueues": ("any", {}),
    "CreateQueue": ("admin", {}),
    "SetQueueAttributes": ("admin", {"Attributes": {"DelaySeconds": "0"}}),
    "TagQueue": ("admin", {"Tags": {"a": "b"}}),
    "UntagQueue": ("admin", {"TagKeys": ["a"]}),
    "AddPermission": ("admin", {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["*"]}),
    "RemovePermission": ("admin", {"Label": "l"}),
    "PurgeQueue": ("admin", {}),
    "StartMessageMoveTask": ("admin", {"SourceArn": f"{ARN}jobs"}),
    "ListMessageMoveTasks": ("admin", {"SourceArn": f"{ARN}jobs"}),
    "CancelMessageMoveTask": ("admin", {"TaskHandle": "jobs/1"}),
    "DeleteQueue": ("admin", {}),
}


@pytest.fixture(scope="module")
def sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqsWeb]:
    tokens = rules(
        shop='publish = ["jobs"]', reader='consume = ["jobs/sqs"]',
        other='admin = ["jobs", "mine*"]\npublish = ["mine*"]',
    )  # fmt: skip
    with sqs_web(tmp_path_factory.mktemp("sqs"), tokens=tokens) as sqs:
        sqs.made("dead")
        yield sqs


def test_each_operation_needs_its_right(sqs: SqsWeb) -> None:
    assert RIGHTS.keys() | {"ListQueues"} == sqs.front._operations.keys()
    holders = {"publish": "shop", "consume": "reader", "admin": "other"}
    for operation, (right, fields) in RIGHTS.items():
        sqs.made("jobs")
        allowed = set()
        for holder in holders.values():
            try:
                sqs.ask(operation, by=holder, **{"QueueUrl": "jobs", "QueueName": "jobs"} | fields)
                allowed.add(holder)
            except SqsRefused as refused:
                if str(refused) != "AccessDeniedException":
                    allowed.add(holder)
        assert allowed == (
            set(holders.values()) if right == "any" else {holders[right]}
        ), operation  # fmt: skip


def test_a_redrive_policy_needs_the_right_to_publish_where_it_leads(sqs: SqsWeb) -> None:
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}dead", "maxReceiveCount": 1})
    given = {"Attributes": {"RedrivePolicy": policy}}
    sqs.ask("CreateQueue", by="other", QueueName="mine")
    for operation, named in (
        ("CreateQueue", {"QueueName": "mine2"}), ("SetQueueAttributes", {"QueueUrl": "mine"})
    ):  # fmt: skip
        with pytest.raises(SqsRefused, match="AccessDenied"):
            sqs.ask(operation, by="other", **named, **given)
        sqs.ask(operation, **named, **given)


def test_nobody_is_told_of_queues_that_are_not_theirs(sqs: SqsWeb) -> None:
    policy = json.dumps({"deadLetterTargetArn": f"{ARN}mine3", "maxReceiveCount": 1})
    sqs.made("mine3")
    sqs.made("theirs", RedrivePolicy=policy)
    named = {"QueueUrl": "mine3"}
    assert sqs.ask("ListDeadLetterSourceQueues", by="other", **named)["queueUrls"] == []
    assert len(sqs.ask("ListDeadLetterSourceQueues", **named)["queueUrls"]) == 1
    assert sqs.ask("ListQueues", by="other", QueueNamePrefix="theirs") == {}


def test_a_list_comes_page_by_page_and_each_queue_once(sqs: SqsWeb) -> None:
    for name in ("page-a", "page-b", "page-c", "page-d"):
        sqs.made(name)
    first = sqs.ask("ListQueues", QueueNamePrefix="page-", MaxResults=2)
    last = sqs.ask("ListQueues", QueueNamePrefix="page-", MaxResults=2,
                   NextToken=first["NextToken"])  # fmt: skip
    assert "NextToken" not in last
    assert [url[-1] for url in first["QueueUrls"] + last["QueueUrls"]] == ["a", "b", "c", "d"]


def test_a_queue_can_be_made_again_by_the_same_words_alone(sqs: SqsWeb) -> None:
    sqs.made("again", DelaySeconds="5")
    sqs.made("again", DelaySeconds="5", VisibilityTimeout="30")  # which is the default
    with pytest.raises(SqsRefused, match="QueueNameExists"):
        sqs.made("again", VisibilityTimeout="31")
    with pytest.raises(SqsRefused, match="InvalidAttributeName"):
        sqs.ask("GetQueueAttributes", QueueUrl="again", AttributeNames=["Delay"])
    assert sqs.attributes("again", "DelaySeconds") == {"DelaySeconds": "5"}


def test_a_queue_of_several_slots_keeps_its_scope(sqs: SqsWeb) -> None:
    names = {"FifoQueue": "true", "DeduplicationScope": "messageGroup"}
    sqs.made("scope.fifo", **names)
    with pytest.raises(SqsRefused, match="InvalidAttributeValue"):
        sqs.ask("SetQueueAttributes", QueueUrl="scope.fifo",
                Attributes={"DeduplicationScope": "queue"})  # fmt: skip
    assert sqs.attributes("scope.fifo", "DeduplicationScope")["DeduplicationScope"] != "queue"


def test_tags_are_counted_with_those_that_were_there(sqs: SqsWeb) -> None:
    sqs.made("tags")
    for start in (0, 25):
        tags = {str(number): "" for number in range(start, start + 25)}
        sqs.ask("TagQueue", QueueUrl="tags", Tags=tags)
    with pytest.raises(SqsRefused, match="InvalidParameterValue"):
        sqs.ask("TagQueue", QueueUrl="tags", Tags={"more": ""})
    sqs.ask("UntagQueue", QueueUrl="tags", TagKeys=["0"])
    assert len(sqs.ask("ListQueueTags", QueueUrl="tags")["Tags"]) == 49


def test_a_deleted_queue_leaves_the_topic_of_another_group(sqs: SqsWeb) -> None:
    store = sqs.gateway.app.store
    for name in ("alone", "beside"):
        sqs.made(name)
    store.subscribe(store.topic("beside") or Topic("none"), "python")
    for name in ("alone", "beside"):
        sqs.sent(name)  # so that the app knows its topic
        sqs.ask("DeleteQueue", QueueUrl=name)
        with pytest.raises(SqsRefused, match="QueueDoesNotExist"):
            sqs.received(name)
    with pytest.raises(SqsRefused, match="QueueDoesNotExist"):
        sqs.sent("alone")
    sqs.sent("beside")  # it is a topic still
    with pytest.raises(UnknownTopic):
        sqs.gateway.app.publish("alone", 1)
    assert store.groups(store.topic("beside") or Topic("none")) == ["python"]


def test_a_purged_queue_is_empty_and_purged_again_after_a_minute(sqs: SqsWeb) -> None:
    sqs.made("full")
    for delay in (0, 60, 0):
        sqs.sent("full", DelaySeconds=delay)
    assert len(sqs.received("full", MaxNumberOfMessages=1)) == 1
    for expected in ("111", "000"):
        states = ("", "Delayed", "NotVisible")
        counts = sqs.attributes("full", *(f"ApproximateNumberOfMessages{each}" for each in states))
        assert "".join(counts.values()) == expected
        with nullcontext() if expected == "111" else pytest.raises(SqsRefused, match="InProgress"):
            sqs.ask("PurgeQueue", QueueUrl="full")
    sqs.sent("full", "new")
    assert [one["Body"] for one in sqs.received("full")] == ["new"]


def test_who_emptied_and_deleted_a_queue_is_known(sqs: SqsWeb) -> None:
    sqs.made("mine-a")
    sqs.ask("PurgeQueue", QueueUrl="mine-a", by="other")
    sqs.ask("DeleteQueue", QueueUrl="mine-a")
    acts = [one for one in sqs.gateway.app.admin.audit() if one.topic == "mine-a"]
    assert [(one.verb, one.group, one.by) for one in acts] == [
        ("delete_topic", None, "owner"), ("drop_group", "sqs", "owner"),
        ("drop_group", "sqs", "other"),
    ]  # fmt: skip


def test_a_statement_is_added_once_and_taken_out_by_its_label(sqs: SqsWeb) -> None:
    sqs.made("policy")

    def permit(label: str, *actions: str) -> None:
        sqs.ask("AddPermission", QueueUrl="policy", Label=label, AWSAccountIds=["12"],
                Actions=actions)  # fmt: skip

    permit("a", "SendMessage")
    permit("b", "SendMessage", "ReceiveMessage")
    for label, actions, code in [
        ("a", ["SendMessage"], "InvalidParameterValue"),
        ("c", ["DeleteQueue"], "InvalidParameterValue"),
        ("c", ["*"] * 8, "OverLimit"),
        ("c", [], "MissingParameter"),
    ]:
        with pytest.raises(SqsRefused, match=code):
            permit(label, *actions)
    sqs.ask("RemovePermission", QueueUrl="policy", Label="a")
    with pytest.raises(SqsRefused, match="InvalidParameterValue"):
        sqs.ask("RemovePermission", QueueUrl="policy", Label="a")
    [left] = json.loads(sqs.attributes("policy", "Policy")["Policy"])["Statement"]
    assert (left["Sid"], left["Action"]) == ("b", ["SQS:SendMessage", "SQS:ReceiveMessage"])


def test_an_address_has_the_scheme_that_its_client_has_used(sqs: SqsWeb) -> None:
    def url(proto: str) -> str:
        headers = {"x-forwarded-proto": proto, "host": "queues.example"}
        sqs.web.headers.update(headers)
        try:
            return str(sqs.ask("GetQueueUrl", QueueName="dead")["QueueUrl"])
        finally:
            for name in headers:
                del sqs.web.headers[name]

    assert url("https") == "https://queues.example/000000000000/dead"
    assert url("javascript") == "http://queues.example/000000000000/dead"


def test_an_access_key_that_is_no_token_is_refused(sqs: SqsWeb) -> None:
    key = {"authorization": "AWS4-HMAC-SHA256 Credential=guessed/x"}
    reply = sqs.web.post("/", headers={**key, "x-amz-target": "AmazonSQS.ListQueues"})
    assert reply.status_code == 403
    assert "InvalidClientTokenId" in reply.headers["x-amzn-query-error"]
    assert "give one as the access key" in reply.json()["message"]


def test_a_request_without_a_body_names_nothing_more(sqs: SqsWeb) -> None:
    key = {"authorization": f"AWS4-HMAC-SHA256 Credential={TOKENS['owner'][0]}/x"}
    reply = sqs.web.post("/", headers={**key, "x-amz-target": "AmazonSQS.ListQueues"})
    assert reply.status_code == 200


def test_a_queue_whose_topic_somebody_has_deleted_is_gone(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def publish(topic: str, _items: object) -> None:
        raise UnknownTopic(topic)

    monkeypatch.setattr(sqs.gateway, "publish", publish)
    with pytest.raises(SqsRefused, match="QueueDoesNotExist"):
        sqs.sent("dead")


def test_an_unforeseen_error_is_a_failure_of_the_service_and_told(
    sqs: SqsWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    sqs.gateway.app.events.listen(lambda name, _: told.append(name))

    def find(_name: str) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(sqs.front.service.book, "find", find)
    with pytest.raises(SqsRefused, match="InternalFailure") as refused:
        sqs.attributes("dead")
    assert (refused.value.status, "secret" in refused.value.message) == (500, False)
    assert told == ["http.failed"]
    form = f"Action=GetQueueUrl&QueueName=dead&AWSAccessKeyId={TOKENS['owner'][0]}"
    assert "<Type>Receiver</Type>" in sqs.web.get(f"/?{form}").text


def test_a_client_that_hangs_up_in_its_request_is_no_failure(sqs: SqsWeb) -> None:
    key = f"AWS4-HMAC-SHA256 Credential={TOKENS['owner'][0]}/x"
    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/", "query_string": b"",
        "client": ("127.0.0.1", 1), "headers": [(b"authorization", key.encode())],
    }  # fmt: skip

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    assert asyncio.run(sqs.front.answer(Request(scope, receive))).status_code == 400
