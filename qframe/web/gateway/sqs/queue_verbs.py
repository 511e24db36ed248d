"""The operations on queues: make, find, describe, change, tag, purge, delete."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from typing import Any, Final

import msgspec

from qframe.errors import TopicMismatch, UnknownGroup, UnknownTopic
from qframe.web.gateway.sqs.attributes import (
    COUNTED,
    FIFO_QUEUE,
    KNOWN,
    REDRIVE,
    check_redrive,
    checked,
    defaults,
    target_of,
)
from qframe.web.gateway.sqs.names import checked_queue_name, queue_named_by
from qframe.web.gateway.sqs.queues import GROUP, Queue
from qframe.web.gateway.sqs.refusals import (
    invalid_parameter,
    invalid_value,
    missing,
    over_limit,
    purged_recently,
    queue_exists,
    unknown_attribute,
    wrong_attribute,
)
from qframe.web.gateway.sqs.requests import (
    CreateQueue,
    GetQueueAttributes,
    GetQueueUrl,
    ListDeadLetterSourceQueues,
    ListQueues,
    OnQueue,
    SetQueueAttributes,
    TagQueue,
    UntagQueue,
)
from qframe.web.gateway.sqs.service import SqsCall, SqsService

MOST_QUEUES: Final = 1000
"""How many queues there may be. A client makes one more only while more are free than it made."""

_MOST_LISTED: Final = 1000
_MOST_TAGS: Final = 50
_PURGE_PAUSE_MS: Final = 60_000


class QueueVerbs:
    """The operations on queues, each a request and who asks to an answer.

    Args:
        service: the parts that all operations share.
    """

    def __init__(self, service: SqsService) -> None:
        self._service = service
        self._book = service.book

    # Making and finding.

    async def create(self, request: CreateQueue, call: SqsCall) -> dict[str, Any]:
        """Makes a queue, unless there is one with the same attributes."""
        given = request.attributes or {}
        is_fifo = given.get(FIFO_QUEUE) == "true"
        name = checked_queue_name(request.queue_name, is_fifo=is_fifo)
        call.check(name, "admin")
        attributes = checked(given, is_fifo=is_fifo, max_body=self._service.max_body)
        self._check_dead_letters(name, attributes, call)
        tags = _checked_tags(request.tags or {}, {}, name)
        await self._service.blocking(self._create, name, attributes, tags, call.caller.name)
        return {"QueueUrl": self._url(name, call)}

    def _create(
        self, name: str, attributes: dict[str, str | None], tags: dict[str, str], client: str
    ) -> None:  # fmt: skip
        there = self._book.find(name)
        if there is None:
            self._check_redrive(name, attributes)
            self._check_room(client)
            now_s = self._service.clock.now_ms() // 1000
            queue = Queue(
                name=name, attributes=_with({}, attributes), tags=tags, created_s=now_s,
                modified_s=now_s, made_by=client,
            )  # fmt: skip
            try:
                if self._book.add(queue):
                    return
            except TopicMismatch:
                raise queue_exists(_other_kind(queue)) from None
            there = self._book.queue(name)
        self._book.serve(there)
        for attribute, value in attributes.items():
            known = defaults(is_fifo=there.is_fifo, max_body=self._service.max_body)
            if there.attributes.get(attribute, known.get(attribute)) != value:
                raise queue_exists(
                    "A queue already exists with the same name and a different value for attribute "
                    f"{attribute}"
                )

    def _check_room(self, client: str) -> None:
        """Checks that the client may make one more queue: as many as are free, at most."""
        queues = self._book.all()
        own = sum(each.made_by == client for each in queues)
        if own >= MOST_QUEUES - len(queues):
            raise over_limit(
                f"{client} has made {own} of the {len(queues)} queues, which is its share of "
                f"{MOST_QUEUES}. Delete some of them, or send to topics that are not queues."
            )

    async def url(self, request: GetQueueUrl, call: SqsCall) -> dict[str, Any]:
        """The address of a queue, or of a topic to send to."""
        queue = await self._service.target(request.queue_name, call, "any")
        return {"QueueUrl": self._url(queue.name, call)}

    async def list_queues(self, request: ListQueues, call: SqsCall) -> dict[str, Any]:
        """The addresses of the queues of which the names begin so."""
        prefix = request.queue_name_prefix or ""
        found = await self._service.blocking(self._book.all)
        names = [each.name for each in found if each.name.startswith(prefix)]
        names = [name for name in names if call.may(name, "any")]
        return self._page("QueueUrls", names, request, call)

    async def sources(self, request: ListDeadLetterSourceQueues, call: SqsCall) -> dict[str, Any]:
        """The addresses of the queues that send their dead letters to this one."""
        queue = await self._service.queue(request.queue_url, call, "any")
        found = await self._service.blocking(self._book.sources_of, queue.name)
        names = [each.name for each in found if call.may(each.name, "any")]
        answer = self._page("queueUrls", names, request, call)
        return {"queueUrls": [], **answer}

    def _page(
        self, field: str, names: list[str], request: ListQueues | ListDeadLetterSourceQueues,
        call: SqsCall,
    ) -> dict[str, Any]:  # fmt: skip
        """A page of queues by name; the token of the next one is the last name of this."""
        most = _MOST_LISTED if request.max_results is None else request.max_results
        if not 1 <= most <= _MOST_LISTED:
            raise invalid_parameter("MaxResults", most, f"It must be from 1 to {_MOST_LISTED}.")
        if request.next_token is not None:
            after = _name_in(request.next_token)
            names = [name for name in names if name > after]
        answer: dict[str, Any] = {}
        if names:
            answer[field] = [self._url(name, call) for name in names[:most]]
        if len(names) > most and request.max_results is not None:
            answer["NextToken"] = urlsafe_b64encode(names[most - 1].encode()).decode()
        return answer

    def _url(self, name: str, call: SqsCall) -> str:
        return self._service.place.url(call.base, name)

    # Attributes.

    async def attributes(self, request: GetQueueAttributes, call: SqsCall) -> dict[str, Any]:
        """Attributes of a queue."""
        queue = await self._service.queue(request.queue_url, call, "any")
        wanted = [name.strip() for name in request.attribute_names or ()]
        for name in wanted:
            if name not in KNOWN and name != "All":
                raise unknown_attribute(name)
        found: dict[str, str] = {}
        if wanted:
            found = self._of_record(queue)
            if "All" in wanted or not COUNTED.keys().isdisjoint(wanted):
                found |= await self._counted(queue)
        if "All" not in wanted:
            found = {name: value for name, value in found.items() if name in wanted}
        return {"Attributes": found} if found else {}

    def _of_record(self, queue: Queue) -> dict[str, str]:
        return {
            **defaults(is_fifo=queue.is_fifo, max_body=self._service.max_body),
            **queue.attributes,
            "QueueArn": self._service.place.arn(queue.name),
            "CreatedTimestamp": str(queue.created_s),
            "LastModifiedTimestamp": str(queue.modified_s),
        }

    async def _counted(self, queue: Queue) -> dict[str, str]:
        """The counts; what the gateway has pulled, and no client has, is as visible as the rest."""
        await self._service.gather(queue)
        slots = await self._service.blocking(self._stats, queue.name)
        counts = {name: sum(getattr(slot, field) for slot in slots)
                  for name, field in COUNTED.items()}  # fmt: skip
        visible, _, hidden = COUNTED
        ahead = max(0, counts[hidden] - self._service.gateway.open_in(queue.name, GROUP))
        counts[visible] += ahead
        counts[hidden] -= ahead
        return {name: str(count) for name, count in counts.items()}

    def _stats(self, name: str) -> list[Any]:
        store = self._service.gateway.app.store
        topic = store.topic(name)
        if topic is None:
            return []
        try:
            return store.stats(topic, GROUP)
        except UnknownGroup:
            return []

    async def set(self, request: SetQueueAttributes, call: SqsCall) -> dict[str, Any]:
        """Changes attributes of a queue."""
        queue = await self._service.queue(request.queue_url, call, "admin")
        if not request.attributes:
            raise missing("Attributes")
        given = checked(request.attributes, is_fifo=queue.is_fifo, max_body=self._service.max_body)
        self._check_dead_letters(queue.name, given, call)
        await self._service.blocking(self._set, queue, given)
        return {}

    def _set(self, queue: Queue, given: dict[str, str | None]) -> None:
        self._check_redrive(queue.name, given)
        if given.get("DeduplicationScope", "messageGroup") == "queue" and not queue.has_one_scope:
            raise wrong_attribute("DeduplicationScope")  # its slots are several for good
        self._book.change(
            queue.name,
            lambda found: msgspec.structs.replace(
                found, attributes=_with(found.attributes, given),
                modified_s=self._service.clock.now_ms() // 1000,
            ),
        )  # fmt: skip

    def _check_dead_letters(
        self, name: str, given: dict[str, str | None], call: SqsCall
    ) -> None:  # fmt: skip
        """Checks that the client may have dead letters go where its policy says."""
        policy = given.get(REDRIVE)
        target = None if policy is None else self._service.place.named_by(target_of(policy))
        if target is not None:
            call.check_way(name, target)

    def _check_redrive(self, name: str, given: dict[str, str | None]) -> None:
        policy = given.get(REDRIVE)
        if policy is not None:
            check_redrive(policy, name, place=self._service.place, find=self._book.find)

    # Tags.

    async def tags(self, request: OnQueue, call: SqsCall) -> dict[str, Any]:
        """The tags of a queue."""
        queue = await self._service.queue(request.queue_url, call, "any")
        return {"Tags": queue.tags} if queue.tags else {}

    async def tag(self, request: TagQueue, call: SqsCall) -> dict[str, Any]:
        """Adds tags to a queue."""
        queue = await self._service.queue(request.queue_url, call, "admin")
        if not request.tags:
            raise missing("Tags")
        await self._service.blocking(
            self._book.change, queue.name,
            lambda found: msgspec.structs.replace(
                found, tags=_checked_tags(request.tags, found.tags, found.name)
            ),
        )  # fmt: skip
        return {}

    async def untag(self, request: UntagQueue, call: SqsCall) -> dict[str, Any]:
        """Takes tags off a queue; those that it has not are nothing."""
        queue = await self._service.queue(request.queue_url, call, "admin")
        if not all(1 <= len(key) <= 128 for key in request.tag_keys) or not request.tag_keys:
            raise invalid_value("Tag keys must be between 1 and 128 characters in length.")
        await self._service.blocking(
            self._book.change, queue.name,
            lambda found: msgspec.structs.replace(
                found, tags=_without(found.tags, request.tag_keys)
            ),
        )  # fmt: skip
        return {}

    # Emptying and deleting.

    async def purge(self, request: OnQueue, call: SqsCall) -> dict[str, Any]:
        """Removes all messages of a queue, those in flight too."""
        queue = await self._service.queue(request.queue_url, call, "admin")
        now_ms = self._service.clock.now_ms()

        def purged(found: Queue) -> Queue:
            if now_ms - found.purged_ms < _PURGE_PAUSE_MS:
                raise purged_recently(found.name)
            return msgspec.structs.replace(found, purged_ms=now_ms)

        await self._service.blocking(self._book.change, queue.name, purged)
        await self._service.leave(queue.name)
        await self._service.blocking(self._empty, queue, call)
        return {}

    def _empty(self, queue: Queue, call: SqsCall) -> None:
        """Forgets the group and all that stands for it; what is sent meanwhile is kept for it."""
        topic = self._book.serve(queue)
        with suppress(UnknownGroup):  # another gateway empties it as well
            call.acting(self._service.gateway.app).drop_group(topic, GROUP, force=True)
        self._book.serve(queue)

    async def delete(self, request: OnQueue, call: SqsCall) -> dict[str, Any]:
        """Deletes a queue; its topic too, unless another group collects from it."""
        name = queue_named_by(request.queue_url)
        call.check(name, "admin")
        await self._service.blocking(self._book.remove, name)
        await self._service.leave(name)
        await self._service.blocking(self._delete, name, call)
        return {}

    def _delete(self, name: str, call: SqsCall) -> None:
        app = self._service.gateway.app
        admin = call.acting(app)
        try:
            with suppress(UnknownGroup):
                admin.drop_group(name, GROUP, force=True)
            if not admin.groups(name):
                admin.delete_topic(name, confirm=name, force=True)
        except UnknownTopic:
            return  # another gateway deletes it as well
        finally:
            app.parts.forget_topics()


def _other_kind(queue: Queue) -> str:
    """Why the topic of this name cannot be the queue, and what can be done."""
    return (
        f"The topic {queue.name!r} is there, and its kind is not {queue.topic.kind!r}. Messages "
        "can be sent to it by its name, without a queue. To receive, use a topic of kind 'delay', "
        "or one of kind 'ordered' with a name that ends in .fifo."
    )


def _with(before: dict[str, str], given: dict[str, str | None]) -> dict[str, str]:
    after = {**before, **given}
    return {name: value for name, value in after.items() if value is not None}


def _without(tags: dict[str, str], keys: list[str]) -> dict[str, str]:
    return {key: value for key, value in tags.items() if key not in keys}


def _checked_tags(given: dict[str, str], before: dict[str, str], name: str) -> dict[str, str]:
    after = {**before, **given}
    if len(after) > _MOST_TAGS:
        raise invalid_value(f"Too many tags added for queue {name}.")
    for key, value in given.items():
        if not 1 <= len(key) <= 128 or len(value) > 256:
            raise invalid_value(
                "Tag keys must be between 1 and 128 characters in length, and values 256 at most."
            )
    return after


def _name_in(token: str) -> str:
    try:
        return urlsafe_b64decode(token.encode()).decode()
    except ValueError:
        raise invalid_parameter("NextToken", token, "It is none of this list's.") from None
