"""`qframe push`: sends a group's messages to a URL, until it is stopped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Final, cast

from qframe.cli.flags import GroupName, TopicName
from qframe.cli.metrics import MetricsPort, counted
from qframe.cli.serving import serve
from qframe.cli.target import Target, coordinated
from qframe.cli.web import require
from qframe.errors import BadOption
from qframe.options.consumer import ConsumerKeywords
from qframe.telemetry.logs import log_events
from qframe.verbs.parameters import argument, option

if TYPE_CHECKING:
    from qframe.push.contents import Events

SECRETS_VARIABLE: Final = "QFRAME_PUSH_SECRETS"


@coordinated
def push(
    target: Target,
    topic: TopicName,
    group: GroupName,
    url: Annotated[str, argument("URL", "Where its messages are sent.")],
    threads: Annotated[
        int, option(least=1, metavar="N", help="How many requests are open at once.")
    ] = 8,
    rate: Annotated[
        str | None, option(metavar="RATE", help="How many a second at most, such as 100/s.")
    ] = None,
    timeout: Annotated[
        float, option(least=0.1, metavar="SECONDS", help="How long a request may take.")
    ] = 20.0,
    private: Annotated[
        bool, option("--private", help="Allow http, and addresses that are not public.")
    ] = False,
    events: Annotated[
        str | None,
        option(metavar="MODE", help="Send CloudEvents: binary, structured or batched."),
    ] = None,
    metrics_port: MetricsPort = None,
    burst: Annotated[
        bool, option("--burst", help="Exit when no message is due or waits for a retry.")
    ] = False,
    drain: Annotated[bool, option("--drain", help="Exit when no message waits at all.")] = False,
) -> None:
    """Sends a group's messages to a URL, each signed.

    Requests are those of Standard Webhooks. It runs until it is stopped, and is a worker of the
    group: a key keeps its order, what fails is tried again. Several share the slots.
    QFRAME_PUSH_SECRETS holds the secret, whsec_ and base64; several, parted by blanks, while one
    is replaced.
    """
    require("push", "push")
    # Loaded here, since no other command needs it, and it is an extra.
    from qframe.push import push as push_of

    options: ConsumerKeywords = {"threads": threads, "timeout": timeout}
    if rate is not None:
        options["rate_limit"] = rate
    if not (secrets := os.environ.get(SECRETS_VARIABLE, "").strip()):
        raise BadOption(
            "environment variable", SECRETS_VARIABLE, "it is not set, and requests are signed",
            "set it to whsec_ and 24 to 64 random bytes in base64",
        )  # fmt: skip
    with target.opened() as app:
        push_of(
            app, topic, group, url, secrets=secrets, private=private,
            events=cast("Events | None", events), **options,
        )  # fmt: skip
        stop = log_events(app.events, app.settings)
        try:
            with counted([app], port=metrics_port, folder=None, number=0):
                serve([app], burst=burst, drain=drain)
        finally:
            stop()
