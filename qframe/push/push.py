"""Registers a push: a consumer whose handler sends each message to a URL."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Unpack

from qframe.app.qframe import QFrame
from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadOption, StoreUnavailable
from qframe.message import Message
from qframe.options.batch import Batch
from qframe.options.consumer import ConsumerKeywords, consumer_options
from qframe.push.contents import EVENTS, Events, PushContent, batch_of, content_of
from qframe.push.webhook import Webhook, WebhookGone
from qframe.retry import NeedTime
from qframe.topic import Topic

AT_ONCE: Final = 8
ANSWERED_WITHIN_S: Final = 20.0
MOST_IN_BATCH: Final = 100
BATCHED_WITHIN_S: Final = 0.05
_UNTIL_PAUSED_S: Final = 5.0  # workers hear of a pause within two


def push(
    app: QFrame,
    topic: Topic | str,
    group: str,
    url: str,
    *,
    secrets: str | Iterable[str],
    private: bool = False,
    events: Events | None = None,
    **options: Unpack[ConsumerKeywords],
) -> None:
    """Has an app's workers send a group's messages to a URL: `qframe.push` says how.

    Args:
        app: the app.
        topic: the topic, or its name.
        group: the group.
        url: where messages are sent, by POST.
        secrets: what they are signed with: `whsec_` and 24 to 64 bytes in base64; several while
            one is replaced by another.
        private: whether any address, and `http`, is allowed, not public ones by `https` alone.
        events: sends CloudEvents in this content mode, "binary", "structured" or "batched"; None
            for messages as they are. With "batched" a request has up to 100 messages, or as many
            as the option `batch` says.
        options: the consumer's. `threads`, 8 by default, is how many requests are open at once,
            and `timeout`, 20 s by default, how long one may take.

    Raises:
        BadUrl: if nothing may be sent there.
        BadOption: if a secret or an option is wrong, or `batch` comes without batched events.
        ConsumerExists: if the app has a handler for this topic and group.
    """
    options.setdefault("threads", AT_ONCE)
    options.setdefault("timeout", ANSWERED_WITHIN_S)
    if events is not None and events not in EVENTS:
        raise BadOption(
            "events", events, "it is no content mode", f"use one of {', '.join(EVENTS)}"
        )
    if events == "batched":
        options.setdefault("batch", Batch(MOST_IN_BATCH, within=BATCHED_WITHIN_S))
    elif "batch" in options:
        why = "a request has one message unless events are batched"
        raise BadOption("batch", options["batch"], why, 'add events="batched", or leave it out')
    checked = consumer_options(**options)
    webhook = Webhook(
        url, secrets, timeout_s=checked.timeout or ANSWERED_WITHIN_S, private=private,
        clock=SYSTEM_CLOCK,
    )  # fmt: skip

    name = topic if isinstance(topic, str) else topic.name

    def post(content: PushContent) -> None:
        try:
            webhook.send(content)
        except WebhookGone as error:
            if app.events:
                app.events.emit("receiver.gone", topic=name, group=group, error=error)
            with suppress(StoreUnavailable):  # it is asked again, and says so again
                app.admin.pause(topic, group, why=str(error))
            raise NeedTime(str(error), _UNTIL_PAUSED_S) from error

    def send(message: Message) -> None:
        post(content_of(message, events, app.settings.namespace))

    def send_batch(messages: list[Message]) -> None:
        post(batch_of(messages, app.settings.namespace))

    app.consumer(topic, group, **options)(send_batch if events == "batched" else send)
