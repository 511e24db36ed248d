"""`python -m benchmarks.questions`: twenty questions of an operator, and whether the answers hold.

It fills a store with messages that nobody asks about (10^6 by default: half of them `ordered`, a
quarter in a stream, a quarter timers), and some that are asked about: an order which one group has
handled and another has not, in the middle of its key's line; a dead one; one that was refunded; the
reminders of one customer, which are due last. Then it asks each question as an operator would, by
the command line or in Python. It checks that what is said is true, and that what was not looked at
is said as well; an answer that does not hold ends it. It prints each answer, and what it took.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from benchmarks.explain import url_of
from benchmarks.report import machine
from qframe import Outgoing, QFrame, Topic
from qframe.admin.search import LOOK
from qframe.clock import SystemClock
from qframe.codec import new_token
from qframe.outcomes import Verdict
from qframe.stores.types import PullRequest, PullTerms, Settlement

ARCHIVE: Final = Topic("archive", kind="ordered", slots=16)
CLICKS: Final = Topic("clicks", slots=8)
REMINDERS: Final = Topic("reminders", kind="delay", slots=8)
ORDERS: Final = Topic("shop-orders", kind="ordered", slots=4, history="1d")
REFUNDS: Final = Topic("shop-refunds", slots=4)
EPOCH: Final = "0" * 15 + "1"
CHUNK: Final = 20_000
DAY_S: Final = 86_400
LINE: Final = 5
"""How many orders of `ann` wait for the group `mail`."""


Program = Callable[..., tuple[int, str]]
"""Runs `qframe` with some words and variables: its exit code, and what it has printed."""


def program(*words: str, **variables: str) -> tuple[int, str]:
    """Runs it in a process of its own."""
    command = [sys.executable, "-m", "qframe", *words]
    around = os.environ | variables
    ran = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


class Shop(NamedTuple):
    """A store that was filled.

    Attributes:
        app: an app on it.
        program: the command line.
        others: how many messages there are that nobody asks about.
    """

    app: QFrame
    program: Program
    others: int

    def said(self, *words: str, code: int | None = 0) -> str:
        """What a command prints."""
        settings = self.app.settings
        ended, text = self.program(
            *words, QFRAME_STORE=settings.store, QFRAME_NAMESPACE=settings.namespace
        )
        assert code in (None, ended), (words, ended, text)
        return text


class Answer(NamedTuple):
    """What was asked, what was answered, and how long that took."""

    question: str
    answer: str
    seconds: float


def main() -> None:
    """Fills a store, asks, and prints one JSON object for each question."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.questions", description=__doc__)
    made.add_argument("--store", default="redis", help="redis, sqlite or postgres, or a URL")
    made.add_argument("--others", type=int, default=1_000_000)
    options = made.parse_args()
    print(json.dumps({"machine": machine()}))
    with url_of(options.store) as url, QFrame(url, log_level="error") as app:
        began = time.perf_counter()
        shop = filled(app, program, options.others)
        took_s = round(time.perf_counter() - began)
        print(json.dumps({"store": url.partition(":")[0], "others": options.others,
                          "filled_s": took_s}), flush=True)  # fmt: skip
        for each in asked(shop):
            print(json.dumps({
                "question": each.question, "answer": each.answer,
                "ms": round(each.seconds * 1000),
            }), flush=True)  # fmt: skip


def asked(shop: Shop) -> Iterator[Answer]:
    """Asks each question once.

    Raises:
        AssertionError: if an answer is not true, or leaves out what was not looked at.
    """
    for question, answered in QUESTIONS.items():
        began = time.perf_counter()
        answer = answered(shop)
        yield Answer(question, " / ".join(answer.split("\n"))[:300], time.perf_counter() - began)


def filled(app: QFrame, program: Program, others: int) -> Shop:
    """Publishes what is asked about, between the messages that nobody asks about."""
    store = app.store
    for topic, groups in (
        (ARCHIVE, ("keeper",)), (CLICKS, ("counter",)), (REMINDERS, ("mailer",)),
        (ORDERS, ("billing", "mail")), (REFUNDS, ("billing",)),
    ):  # fmt: skip
        app.declare(topic)
        for group in groups:
            store.subscribe(topic, group)
            store.take(topic, group, dict.fromkeys(range(topic.slots), EPOCH))
    for topic, count, delay_s in (
        (ARCHIVE, others // 2, None), (CLICKS, others // 4, None),
        (REMINDERS, others - others // 2 - others // 4, DAY_S),
    ):  # fmt: skip
        for start in range(0, count, CHUNK):
            app.publish_many(
                topic,
                [
                    Outgoing({"n": number}, key=f"k{number}", delay=delay_s, tags=["bulk"])
                    for number in range(start, min(count, start + CHUNK))
                ],
                batch=CHUNK,
            )
    for number in range(3):
        app.publish(REMINDERS, {"pay": number}, key=f"c7-{number}", id=f"remind-{number}",
                    delay=2 * DAY_S + number, tags=["customer-7"])  # fmt: skip
    for number in range(LINE):
        app.publish(ORDERS, {"n": number, "user": {"id": 5}}, key="ann", id=f"order-{number}",
                    headers={"from": "shop"}, tags=["gold"])  # fmt: skip
        _settle(app, ORDERS, "billing", Verdict.ACK)
    app.publish(ORDERS, {"n": -1}, key="ben", id="order-bad")
    _settle(app, ORDERS, "billing", Verdict.DEAD)
    app.publish(REFUNDS, {"n": 1}, key="ann", id="refund-1")
    app.publish(REFUNDS, {"n": 2}, key="ann", id="refund-2", delay=DAY_S)
    return Shop(app, program, others)


def _settle(app: QFrame, topic: Topic, group: str, verdict: Verdict) -> None:
    """Has a worker of a group end what is due for it."""
    receipt = f"{new_token(SystemClock())}@worker-1"
    asks = [PullRequest(slot, EPOCH, 9) for slot in range(topic.slots)]
    found = app.store.pull(topic, group, asks, PullTerms(receipt, 60_000, 16)).deliveries
    app.store.settle(topic, group, [
        Settlement(
            slot=one.slot, subject=one.subject, seq=one.seq, receipt=one.receipt,
            attempt=one.attempt, epoch=EPOCH, verdict=verdict, id=one.id,
            error="KeyError: 'price'" if verdict is Verdict.DEAD else None,
        )
        for one in found
    ])  # fmt: skip


# The questions. Each answers with what an operator would read.


def where_is_an_order(shop: Shop) -> str:
    text = shop.said("explain", "order-3")
    assert "todo in shop-orders, group mail: it waits behind order-0 of the same key" in text
    assert "settled in shop-orders, group billing: the group settled it at" in text
    assert "attempt 1" in text
    return text


def where_is_an_order_of_a_topic(shop: Shop) -> str:
    found = shop.app.admin.explain(ORDERS, "order-4")
    states = {each.group: each.state for each in found}
    assert states == {"billing": "settled", "mail": "todo"}
    assert not any(each.looked > 99 for each in found)
    return str(states)


def what_waits_of_a_key(shop: Shop) -> str:
    text = shop.said("explain", ORDERS.name, "--key", "ann")
    assert all(f"order-{number}" in text for number in range(LINE))
    return text


def where_is_a_key_everywhere(shop: Shop) -> str:
    found = shop.app.admin.explain(key="ann")
    assert {each.id for each in found if each.is_found} == {f"order-{n}" for n in range(LINE)}
    [unread] = [each for each in found if not each.is_found]
    assert (unread.state, "clicks, shop-refunds" in unread.cause.text) == ("unknown", True)
    return unread.cause.text


def where_is_a_refund_of_a_key(shop: Shop) -> str:
    found = shop.app.admin.explain(REFUNDS, key="ann")
    states = {each.id: each.state for each in found}
    assert states == {"refund-1": "todo", "refund-2": "waiting"}
    return str(states)


def where_is_a_delayed_refund(shop: Shop) -> str:
    text = shop.said("explain", "refund-2")
    assert text.startswith("waiting in shop-refunds: it is not due until")
    return text


def where_is_what_was_never_published(shop: Shop) -> str:
    [one] = shop.app.admin.explain(message_id="order-99")
    assert one.state == ("unknown" if shop.others > LOOK else "absent")
    assert one.cause.facts["complete"] is (one.place is None)
    if one.place is not None:
        assert one.looked >= LOOK
        hits = shop.app.admin.search(id="order-99", place=one.place)
        assert (hits.records, hits.is_all) == ([], hits.place is None)
    return f"{one.state}: {one.cause.text}"


def is_it_in_this_topic(shop: Shop) -> str:
    text = shop.said("explain", ORDERS.name, "order-99", code=1)
    assert text.startswith("absent in shop-orders: topic shop-orders has no such message")
    return text


def which_message_is_at_an_offset(shop: Shop) -> str:
    text = shop.said("explain", CLICKS.name, "--offset", "5", "--slot", "0")
    assert text.startswith("todo in clicks, group counter")
    return text


def which_have_this_id(shop: Shop) -> str:
    hits = shop.app.admin.search(id="order-3")
    found = {(each.topic, each.group, each.key) for each in hits.records}
    assert (found, hits.place) == ({("shop-orders", "mail", "ann")}, None)
    return f"{found}, looked at {hits.looked}"


def which_have_this_key(shop: Shop) -> str:
    text = shop.said("search", "--key", "ann")
    assert "order-0" in text
    assert "not looked at" in text
    assert "clicks, shop-refunds" in text
    return text.splitlines()[-1]


def which_have_this_header(shop: Shop) -> str:
    hits = shop.app.admin.search(ORDERS, headers={"from": "shop"})
    assert {each.id for each in hits.records} == {f"order-{number}" for number in range(LINE)}
    assert hits.is_all
    return f"{len(hits.records)} found, all {hits.looked} looked at"


def which_have_this_tag(shop: Shop) -> str:
    text = shop.said("search", "--tag", "gold", "--look", "1000")
    assert text.startswith("nothing found so far: not all was looked at")
    place = text.split("--from ")[1].strip()
    again = shop.said("search", "--tag", "gold", "--look", "1000", "--from", place)
    assert "go on: --from" in again
    assert "order-0" in shop.said("search", ORDERS.name, "--tag", "gold")
    return text


def which_have_this_in_their_bodies(shop: Shop) -> str:
    hits = shop.app.admin.search(ORDERS, body={"user.id": "5"}, limit=2)
    assert len(hits.records) >= 2
    ids = {each.id for each in hits.records}
    while hits.place is not None:
        hits = shop.app.admin.search(ORDERS, body={"user.id": "5"}, limit=2, place=hits.place)
        ids |= {each.id for each in hits.records}
    assert ids == {f"order-{number}" for number in range(LINE)}
    return str(sorted(ids))


def which_are_dead_in_the_archive(shop: Shop) -> str:
    hits = shop.app.admin.search(ARCHIVE, state="dead")
    assert (hits.records, hits.looked, hits.is_all) == ([], 0, True)
    return "none: there are no dead letters to look at"


def which_reminders_has_a_customer(shop: Shop) -> str:
    page = shop.app.timers.find(REMINDERS, tag="customer-7")
    is_whole = page.place is None
    assert is_whole == (len(page.records) == 3)
    looked: list[int] = []
    found = list(shop.app.timers.find_all(REMINDERS, on_progress=looked.append, tag="customer-7"))
    assert [each.key for each in found] == ["c7-0", "c7-1", "c7-2"]
    assert [each.decoded_body for each in found] == [{"pay": number} for number in range(3)]
    assert looked[-1] == shop.others - shop.others // 2 - shop.others // 4 + 3
    return f"{[str(each.due_at) for each in found]}, looked at {looked[-1]}"


def how_is_a_reminder(shop: Shop) -> str:
    [by_key] = shop.app.timers.status(REMINDERS, "c7-1")
    assert (by_key.state, by_key.id) == ("waiting", "remind-1")
    text = shop.said("timers", "show", REMINDERS.name, "--id", "remind-1")
    if shop.others > 4 * LOOK:
        assert "unknown" in text
        assert "go on: qframe timers list reminders --id remind-1 --from" in text
    else:
        assert "waiting" in text
    return f"by key: {by_key.state}; by id: {text}"


def which_are_dead(shop: Shop) -> str:
    text = shop.said("dead", "list", ORDERS.name, "billing")
    assert "order-bad" in text
    assert "KeyError" in text
    return text


def what_is_next_for_a_group(shop: Shop) -> str:
    records = shop.app.admin.peek(ORDERS, "mail", limit=2)
    assert len(records) == 2
    text = shop.said("messages", "peek", ORDERS.name, "mail", "--limit", "2")
    assert "order-" in text
    return text


def how_many_are_where(shop: Shop) -> str:
    found = {each.name: each for each in shop.app.admin.topics()}
    assert set(found) == {each.name for each in (ARCHIVE, CLICKS, REMINDERS, ORDERS, REFUNDS)}
    [keeper] = found[ARCHIVE.name].groups
    [mailer] = found[REMINDERS.name].groups
    assert keeper.todo == shop.others // 2
    assert mailer.waiting == shop.others - shop.others // 2 - shop.others // 4 + 3
    return f"archive {keeper.todo} todo, reminders {mailer.waiting} waiting"


def how_far_behind_is_a_group(shop: Shop) -> str:
    lag = shop.app.admin.lag(ORDERS, "mail")
    assert lag == LINE + 1
    billing = shop.app.admin.stats(ORDERS, "billing")
    assert sum(each.dead for each in billing) == 1
    assert sum(each.settled for each in billing) == LINE
    return f"mail has {lag} to do"


def what_does_a_group_wait_for(shop: Shop) -> str:
    first = shop.app.admin.first_of_key(ORDERS, "mail", "ann")
    assert first.id == "order-0"
    [one] = [each for each in shop.app.admin.explain(ORDERS, first.id) if each.group == "mail"]
    assert one.cause.name == "no-worker"
    return f"{first.id}: {one.cause.text}"


def is_anything_wrong(shop: Shop) -> str:
    text = shop.said("doctor", code=None)  # a store without persistence is a fault, too
    parts = [" ".join(text.split())]
    while behind := re.search(r"go on: qframe doctor --from (\S+)", parts[-1]):
        text = shop.said("doctor", "--from", behind[1], code=None)
        parts.append(" ".join(text.split()))
    wrong = "shop-orders/mail has 6 messages due or in hand, and no worker is alive"
    assert any(wrong in part for part in parts)
    return f"{wrong} (in {len(parts)} parts)"


def does_it_add_up(shop: Shop) -> str:
    text = shop.said("store", "verify")
    assert all(f"{each.name}: ok" in text for each in (ARCHIVE, CLICKS, REMINDERS, ORDERS))
    return text


QUESTIONS: Final[dict[str, Callable[[Shop], str]]] = {
    "Where is order-3, for each group?": where_is_an_order,
    "Where is order-4 of shop-orders?": where_is_an_order_of_a_topic,
    "What waits of ann's orders?": what_waits_of_a_key,
    "Where is anything of ann?": where_is_a_key_everywhere,
    "Where are ann's refunds?": where_is_a_refund_of_a_key,
    "Why is refund-2 not handled?": where_is_a_delayed_refund,
    "Where is order-99, which was never published?": where_is_what_was_never_published,
    "Is order-99 in shop-orders?": is_it_in_this_topic,
    "Which message is at offset 5 of clicks?": which_message_is_at_an_offset,
    "Which messages have the id order-3?": which_have_this_id,
    "Which messages have the key ann?": which_have_this_key,
    "Which orders come from the shop?": which_have_this_header,
    "Which messages have the tag gold?": which_have_this_tag,
    "Which orders are of user 5?": which_have_this_in_their_bodies,
    "What is dead in the archive?": which_are_dead_in_the_archive,
    "Which reminders has customer 7?": which_reminders_has_a_customer,
    "How is reminder c7-1, and remind-1?": how_is_a_reminder,
    "What died of billing, and why?": which_are_dead,
    "What comes next for mail?": what_is_next_for_a_group,
    "How many messages are where?": how_many_are_where,
    "How far behind is mail?": how_far_behind_is_a_group,
    "What does mail wait for?": what_does_a_group_wait_for,
    "Is anything wrong?": is_anything_wrong,
    "Does it all add up?": does_it_add_up,
}


if __name__ == "__main__":
    main()
