"""Queues of the SQS front: names, attributes, and the book that keeps them in the store."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from qframe.clock import VirtualClock
from qframe.errors import TopicMismatch
from qframe.stores.model.store import ModelStore
from qframe.topic import Topic
from qframe.web.gateway.sqs.attributes import check_redrive, checked
from qframe.web.gateway.sqs.names import Place, checked_queue_name, queue_named_by
from qframe.web.gateway.sqs.queues import GROUP, Queue, QueueBook
from qframe.web.gateway.sqs.refusals import SqsRefusal
from qframe.web.gateway.sqs.remembered import Remembered

PLACE = Place(account="123456789012")


class Scene:
    """A store in memory, and as many books as gateways."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = ModelStore(namespace="n", clock=self.clock)

    def book(self) -> QueueBook:
        return QueueBook(self.store, clock=self.clock, place=PLACE)


def _tagged(key: str, queue: Queue) -> Queue:
    return msgspec.structs.replace(queue, tags={**queue.tags, key: "x"})


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("http://localhost:5000/123456789012/orders", "orders"), ("orders", "orders"),
        ("/123/orders.fifo", "orders.fifo"), ("https://sqs.eu-west-1.amazonaws.com/1/a-b/", "a-b"),
    ],
)  # fmt: skip
def test_an_address_of_any_host_names_its_queue(given: str, name: str) -> None:
    assert queue_named_by(given) == name


@pytest.mark.parametrize(
    "given", ["", "http://", "/", "qframe.sqs", "a b", "x" * 65, "..", "http://["]
)
def test_an_address_of_no_queue_is_refused(given: str) -> None:
    with pytest.raises(SqsRefusal) as refused:
        queue_named_by(given)
    assert refused.value.code == "AWS.SimpleQueueService.NonExistentQueue"


@pytest.mark.parametrize(
    ("name", "is_fifo"), [("", False), ("a.b", False), ("a", True), ("a.fifo", False),
                          ("x" * 81, False), ("x" * 65, False), ("qframe.x", False)],
)  # fmt: skip
def test_a_name_that_no_queue_may_have_is_refused(name: str, is_fifo: bool) -> None:
    with pytest.raises(SqsRefusal):
        checked_queue_name(name, is_fifo=is_fifo)


def test_an_arn_of_this_place_names_a_queue() -> None:
    assert PLACE.named_by(PLACE.arn("orders.fifo")) == "orders.fifo"
    for arn in (PLACE.arn("\ud800"), PLACE.arn("a b"), PLACE.arn(""), "arn:aws:sqs:mars:1:orders"):
        assert PLACE.named_by(arn) is None


def test_attributes_are_kept_as_they_are_shown() -> None:
    policy = '{"deadLetterTargetArn":"arn","maxReceiveCount":"3"}'
    given = {
        "VisibilityTimeout ": "000", "RedrivePolicy": policy, "Policy": "", "KmsMasterKeyId": "k",
        "FifoQueue": "true", "ContentBasedDeduplication": "true",
    }  # fmt: skip
    assert checked(given, is_fifo=True, max_body=10**6) == {
        "VisibilityTimeout": "0", "Policy": None, "KmsMasterKeyId": "k",
        "ContentBasedDeduplication": "true",
        "RedrivePolicy": json.dumps({"deadLetterTargetArn": "arn", "maxReceiveCount": 3}),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("Nothing", "1", "InvalidAttributeName"),
        ("QueueArn", "arn", "InvalidAttributeName"),
        ("ContentBasedDeduplication", "true", "InvalidAttributeName"),
        ("VisibilityTimeout", "43201", "InvalidAttributeValue"),
        ("VisibilityTimeout", "-1", "InvalidAttributeValue"),
        ("VisibilityTimeout", "٣", "InvalidAttributeValue"),
        ("DelaySeconds", "9" * 5000, "InvalidAttributeValue"),
        ("DelaySeconds", f"{0:012}99", "InvalidAttributeValue"),
        ("MaximumMessageSize", "1023", "InvalidAttributeValue"),
        ("MaximumMessageSize", "5001", "InvalidAttributeValue"),
        ("SqsManagedSseEnabled", "yes", "InvalidAttributeValue"),
        ("Policy", "no json", "InvalidAttributeValue"),
        ("Policy", '{"Statement": "all"}', "InvalidAttributeValue"),
        ("Policy", '{"Statement": [null]}', "InvalidAttributeValue"),
        ("RedrivePolicy", "[1]", "InvalidAttributeValue"),
        ("RedrivePolicy", '{"deadLetterTargetArn": "a"}', "InvalidParameterValue"),
        ("RedrivePolicy", '{"deadLetterTargetArn": "a", "maxReceiveCount": 0}',
         "InvalidParameterValue"),
        ("RedrivePolicy", '{"deadLetterTargetArn": "a", "maxReceiveCount": 1001}',
         "InvalidParameterValue"),
        ("RedrivePolicy", '{"deadLetterTargetArn": "a", "maxReceiveCount": Infinity}',
         "InvalidParameterValue"),
    ],
)  # fmt: skip
def test_an_attribute_that_a_queue_cannot_have_is_refused(name: str, value: str, code: str) -> None:
    with pytest.raises(SqsRefusal) as refused:
        checked({name: value}, is_fifo=False, max_body=5000)
    assert refused.value.code == code


def test_a_redrive_policy_names_another_queue_of_the_same_sort() -> None:
    def check(target: str, name: str) -> None:
        policy = json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": 1})
        known = {"dead", "dead.fifo", "q"}
        check_redrive(
            policy, name, place=PLACE, find=lambda queue: queue if queue in known else None
        )

    check(PLACE.arn("dead"), "q")
    for target, name in [
        (PLACE.arn("none"), "q"), (PLACE.arn("dead"), "q.fifo"), (PLACE.arn("q"), "q"),
        ("arn:aws:sqs:mars:123456789012:dead", "q"), ("dead", "q"),
    ]:  # fmt: skip
        with pytest.raises(SqsRefusal):
            check(target, name)


def test_a_queue_is_a_topic_and_a_group_and_outlives_the_gateway_that_made_it() -> None:
    scene = Scene()
    book = scene.book()
    assert book.find("q") is None
    assert book.all() == []
    assert book.add(Queue(name="q", tags={"a": "b"}))
    assert not scene.book().add(Queue(name="q"))
    assert scene.book().queue("q").tags == {"a": "b"}
    topic = scene.store.topic("q")
    assert topic is not None
    assert (topic.kind, scene.store.groups(topic)) == ("delay", [GROUP])
    assert book.add(Queue(name="q.fifo"))
    assert [each.name for each in scene.book().all()] == ["q", "q.fifo"]


def test_two_gateways_that_change_one_queue_at_once_lose_nothing() -> None:
    scene = Scene()
    one, other = scene.book(), scene.book()
    one.add(Queue(name="q"))
    calls = 0

    def slowly(queue: Queue) -> Queue:
        nonlocal calls
        calls += 1
        if calls == 1:
            other.change("q", lambda found: _tagged("others", found))
        return _tagged("own", queue)

    assert set(one.change("q", slowly).tags) == {"own", "others"}
    assert calls == 2


def test_what_another_gateway_has_changed_is_seen_within_a_second() -> None:
    scene = Scene()
    one, other = scene.book(), scene.book()
    one.add(Queue(name="q"))
    assert one.queue("q").tags == {}
    other.change("q", lambda found: _tagged("x", found))
    scene.clock.advance(1000)
    assert one.queue("q").tags == {"x": "x"}


def test_a_deleted_queue_is_gone_and_can_be_made_again() -> None:
    scene = Scene()
    book = scene.book()
    book.add(Queue(name="q", tags={"a": "b"}))
    book.remove("q")
    with pytest.raises(SqsRefusal):
        book.queue("q")
    with pytest.raises(SqsRefusal):
        book.change("q", lambda found: found)
    assert book.all() == []
    with pytest.raises(SqsRefusal):
        book.remove("q")
    assert book.add(Queue(name="q"))
    assert book.queue("q").tags == {}
    assert [each.name for each in book.all()] == ["q"]


def test_what_is_known_of_a_queue_that_nobody_uses_takes_no_room() -> None:
    scene = Scene()
    book = scene.book()
    for name in ("a", "b", "c"):
        book.add(Queue(name=name))
    book.queue("a")
    scene.clock.advance(500)
    book.queue("b")
    scene.clock.advance(500)
    book.queue("c")
    assert book._read.keys() == {"b", "c"}


def test_a_topic_that_is_no_queue_is_a_target_of_its_kind_and_nothing_else() -> None:
    scene = Scene()
    scene.store.declare(Topic("q", kind="ordered", slots=4))
    book = scene.book()
    target = book.target("q")
    assert (target.is_fifo, target.has_one_scope, target.needs_deduplication_id) == (
        True, False, False
    )  # fmt: skip
    with pytest.raises(SqsRefusal, match="CreateQueue"):
        book.queue("q")
    for missing in (book.target, book.queue):
        with pytest.raises(SqsRefusal, match=r"does not exist\.$"):
            missing("none")


def test_of_what_a_client_has_kept_too_much_its_own_oldest_is_forgotten() -> None:
    kept: Remembered[str, int] = Remembered(2)
    kept.keep("quiet", "x", 0)
    for number, key in enumerate("aba"):
        kept.keep("greedy", key, number)
    kept.keep("greedy", "c", 3)
    assert [kept.get(key) for key in "xabc"] == [0, 2, None, 3]


def test_a_topic_of_another_kind_is_no_queue() -> None:
    scene = Scene()
    scene.store.declare(Topic("q", slots=4))
    scene.store.declare(Topic("there", kind="delay", slots=2))
    book = scene.book()
    with pytest.raises(TopicMismatch):
        book.add(Queue(name="q"))
    assert book.add(Queue(name="there"))
    found = scene.store.topic("there")
    assert found is not None
    assert found.slots == 2


def test_sources_name_a_dead_letter_queue_and_are_read_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    policy = json.dumps({"deadLetterTargetArn": PLACE.arn("dead"), "maxReceiveCount": 3})
    one, other = scene.book(), scene.book()
    one.add(Queue(name="dead"))
    reads = []
    look = scene.store.list_documents

    def counted(*args: Any) -> Any:
        reads.append(args)
        return look(*args)

    monkeypatch.setattr(scene.store, "list_documents", counted)
    assert [one.sources_of("dead") for _ in range(5)] == [[]] * 5
    assert len(reads) == 1
    one.add(Queue(name="q", attributes={"RedrivePolicy": policy}))
    assert [each.name for each in one.sources_of("dead")] == ["q"], "its own change counts at once"
    assert (one.queue("q").max_attempts, one.queue("dead").max_attempts) == (3, 1000)
    other.add(Queue(name="r", attributes={"RedrivePolicy": policy}))
    scene.clock.advance(1000)
    assert [each.name for each in one.sources_of("dead")] == ["q", "r"]


def test_what_is_looked_up_while_a_queue_is_written_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look may end before the write, or begin before it and end after it."""
    scene = Scene()
    book = scene.book()
    book.add(Queue(name="q"))
    write, stored = scene.store.write_documents, QueueBook._stored

    def looked_at(*given: Any) -> Any:
        book.find("q")
        book.sources_of("q")
        return write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(scene.store, "write_documents", looked_at)
        book.change("q", lambda queue: _tagged("a", queue))
    assert book.queue("q").tags.keys() == {"a"}

    scene.clock.advance(60_000)

    def overtaken(self: QueueBook, name: str) -> tuple[Queue | None, int]:
        patch.undo()
        found = stored(self, name)
        book.change("q", lambda queue: _tagged("b", queue))
        return found

    patch.setattr(QueueBook, "_stored", overtaken)
    book.find("q")
    assert book.queue("q").tags.keys() == {"a", "b"}
