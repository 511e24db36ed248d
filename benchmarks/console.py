"""`python -m benchmarks.console`: how long each page of the console takes about a long backlog.

It fills one topic as `benchmarks.explain` does, with the same options, and asks the console's ASGI
app for each page: from the request to the first byte of the page. `cold` is a console at which
nobody has looked: no sample of the topics, and no template read. `again` is one that has been
looked at, each time with another query, so that no page is taken from what is shared for a second.
It prints the shortest, the median and the longest of the calls, beside the bar of 200 ms; on a
machine that is busy with other things the shortest tells most.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any
from urllib.parse import quote

from benchmarks.explain import BAR_MS, GROUP, TOPIC, examples, fill, parser, url_of
from benchmarks.report import machine
from qframe import QFrame, Topic
from qframe.clock import SystemClock
from qframe.codec import new_token
from qframe.web import console

COLD = 5


def main() -> None:
    """Measures what the command line asks for, and prints one JSON object for each page."""
    options = parser("benchmarks.console", __doc__).parse_args()
    print(json.dumps({"machine": machine()}))
    with url_of(options.store) as url, QFrame(url, log_level="error") as app:
        topic = Topic(TOPIC, kind=options.kind, slots=options.slots, dedupe_window="1d")
        app.declare(topic)
        if not options.filled:
            fill(app, topic, url, options)
        if options.calls:
            asyncio.run(report(app, pages(app, topic, options), options.calls))


def pages(app: QFrame, topic: Topic, options: Any) -> dict[str, str]:
    """An address of each page, by its name."""
    waiting, dead = examples(app, topic, options)
    place = f"/topics/{topic.name}/{GROUP}"
    key = f"k{options.waiting // 2}"
    return {
        "overview": "/",
        "topic": f"/topics/{topic.name}",
        "group": place,
        **({} if topic.has_subjects else {"group, seek": f"{place}?to=earliest"}),
        "dead": f"{place}/dead",
        "dead, next page": f"{place}/dead?after={dead.dead_place}",
        "key": f"{place}/key?key={key}",
        "messages": f"/messages?q=topic:{topic.name}",
        "messages, by key": f"/messages?q=key:{key}+topic:{topic.name}",
        "message, waiting": f"/messages/{quote(waiting)}",
        "message, dead": f"/messages/{quote(dead.id)}",
        "message, never seen": f"/messages/{new_token(SystemClock())}",
        "timers": f"/timers?topic={topic.name}",
        "schedules": "/schedules",
        "workers": "/workers",
        "outbox": "/outbox",
        "audit": "/audit",
        "settings": "/settings",
        "help": "/help",
    }


async def report(app: QFrame, addresses: dict[str, str], times: int) -> None:
    """Asks for each page in turns, and prints how long that took."""
    known = console(app, role="owner")
    for address in addresses.values():
        await first_byte_ms(known, address)
    took: dict[tuple[str, str], list[float]] = {}
    for number in range(times):
        for name, address in addresses.items():
            if number < COLD:
                fresh = console(app, role="owner")
                took.setdefault(("cold", name), []).append(await first_byte_ms(fresh, address))
            another = f"{address}{'&' if '?' in address else '?'}n={number}"
            took.setdefault(("again", name), []).append(await first_byte_ms(known, another))
    for (how, name), each in sorted(took.items()):
        median, most = statistics.median(each), max(each)
        print(json.dumps({
            "how": how, "page": name, "min_ms": round(min(each), 1),
            "median_ms": round(median, 1), "max_ms": round(most, 1),
            "within_the_bar": median <= BAR_MS,
        }), flush=True)  # fmt: skip


async def first_byte_ms(app: Any, address: str) -> float:
    """The time from a request to the first byte of its page."""
    path, _, query = address.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    first: list[float] = []
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            statuses.append(event["status"])
        elif event.get("body") and not first:
            first.append(time.perf_counter())

    began = time.perf_counter()
    await app(scope, receive, send)
    if statuses != [200]:
        raise SystemExit(f"{address} answered {statuses}")
    return (first[0] - began) * 1000


if __name__ == "__main__":
    main()
