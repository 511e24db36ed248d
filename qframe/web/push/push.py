"""Registers a push: a consumer whose handler sends each message to a URL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Unpack

from qframe.app.qframe import QFrame
from qframe.clock import SYSTEM_CLOCK
from qframe.message import Message
from qframe.options.consumer import ConsumerKeywords, consumer_options
from qframe.retry import NeedRetry
from qframe.topic import Topic
from qframe.web.push.webhook import Webhook, WebhookGone

AT_ONCE: Final = 8
ANSWERED_WITHIN_S: Final = 20.0
_AFTER_PAUSE_S: Final = 60.0


def push(
    app: QFrame,
    topic: Topic | str,
    group: str,
    url: str,
    *,
    secrets: str | Iterable[str],
    private: bool = False,
    **options: Unpack[ConsumerKeywords],
) -> None:
    """Has an app's workers send a group's messages to a URL: `qframe.web.push` says how.

    Args:
        app: the app.
        topic: the topic, or its name.
        group: the group.
        url: where messages are sent, by POST.
        secrets: what they are signed with: `whsec_` and 24 to 64 bytes in base64; several while
            one is replaced by another.
        private: whether any address, and `http`, is allowed, not public ones by `https` alone.
        options: the consumer's. `threads`, 8 by default, is how many requests are open at once,
            and `timeout`, 20 s by default, how long one may take.

    Raises:
        BadUrl: if nothing may be sent there.
        BadOption: if a secret or an option is wrong.
        ConsumerExists: if the app has a handler for this topic and group.
    """
    options.setdefault("threads", AT_ONCE)
    options.setdefault("timeout", ANSWERED_WITHIN_S)
    checked = consumer_options(**options)
    webhook = Webhook(
        url, secrets, timeout_s=checked.timeout or ANSWERED_WITHIN_S, concurrency=checked.threads,
        private=private, clock=SYSTEM_CLOCK,
    )  # fmt: skip

    def send(message: Message) -> None:
        try:
            webhook.send(message)
        except WebhookGone as error:
            app.admin.pause(topic, group, why=str(error))
            raise NeedRetry(str(error), delay=_AFTER_PAUSE_S) from error

    app.consumer(topic, group, **options)(send)
