"""What a user's type checker says of code that uses qframe: nothing where it is right."""

from __future__ import annotations

import re
from pathlib import Path

from programs import ROOT, python

RIGHT = """
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict, assert_type

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from qframe import (
    AllOf, Backoff, Batch, Breaker, DatabaseChecker, Message, Middleware, NeedRetry, Outbox,
    Outgoing, Published, QFrame, RateLimit, RedisChecker, Reject, Topic, TransactionalChecker,
    consumer,
)

app = QFrame(store="sqlite:///q.db", grace="20s")
engine = create_engine("sqlite:///b.db")
orders = Topic("orders", kind="ordered", slots=16)
app.checker("one", TransactionalChecker(engine))
app.checker("two", DatabaseChecker(engine))
app.checker("three", RedisChecker("redis://localhost"))


@dataclass
class Order:
    number: int


@app.middleware
class Timing(Middleware):
    def before(self, message: Message) -> None: ...


@app.consumer(
    orders, group="billing", threads=8, backoff=Backoff("1s"), lease="30s", timeout=5,
    rate_limit="100/s", tags=["vip"], breaker=Breaker(10), idempotent_checker="one",
    middleware=[Timing()],
)
def bill(order: Order, message: Message, session: Session) -> int:
    message.auto_ack = False
    message.ack(elapsed=1.0)
    if message.cancelled:
        raise NeedRetry("busy", delay=timedelta(seconds=4))
    raise Reject("no")


@consumer("orders", group="audit", tags=AllOf("a", "b"), rate_limit=RateLimit("9/s", over="group"))
async def audit(order: Order) -> None: ...


@app.consumer(orders, group="many", batch=Batch(500, "50ms"))
def many(messages: list[Message]) -> None: ...


async def call() -> None:
    await audit(Order(1))
    assert_type(await app.apublish(orders, 1), Published)


many([])
assert_type(app.publish(orders, Order(1), key="ann", delay="3s"), Published)
assert_type(app.publish_many(orders, [Outgoing(Order(1), key="ann")]), list[Published])
typed = Topic[Order]("typed", kind="delay", subject="body")
assert_type(app.publish(typed, Order(1)), Published)
assert_type(app.timers.schedule(typed, Order(1), delay="1h"), Published)
app.publish_many(typed, [Order(1), Outgoing(Order(2), key="ann")])
app.publish("by-name", {"n": 1})


class Line(TypedDict):
    number: int


app.publish(Topic[Line]("lines"), Line(number=1))
with app.buffered(linger="5ms") as producer:
    assert_type(producer.publish(orders, Order(1), key="ann").result(), Published)
with app.pull("orders", "billing") as messages:
    for message in messages:
        assert_type(message, Message)
outbox = app.relay(Outbox(engine))
with Session(engine) as session:
    assert_type(bill(Order(1), message, session), int)
    assert_type(outbox.publish(session, orders, {"n": 1}, key="ann"), str)
"""

WRONG = """
from qframe import Message, NeedRetry, QFrame, Topic

app = QFrame()
orders = Topic("orders")
numbers = Topic[int]("numbers")
Topic("orders", kind="orderd")  # wrong
Topic("orders", subject="key")  # wrong
QFrame(stroe="sqlite://")  # wrong


@app.consumer(orders, group="g")
def handle(message: Message) -> None: ...


handle("no message")  # wrong
app.publish(orders, 1, keys="k")  # wrong
app.publish_many(orders, 5)  # wrong
app.publish(numbers, "nonsense")  # wrong
app.buffered().publish(numbers, "nonsense")  # wrong
app.timers.schedule(numbers, "nonsense", delay="1h")  # wrong
app.consumer(orders)  # wrong
app.consumer(orders, group="g", thread=8)  # wrong
app.consumer(orders, group="g", start="now")  # wrong
NeedRetry(5)  # wrong
"""


def test_strict_types_of_a_users_code_are_wrong_where_it_is_and_nowhere_else(
    tmp_path: Path,
) -> None:
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    ran = python(
        "-m", "mypy", "--strict", "--config-file=", "right.py", "wrong.py",
        cwd=tmp_path, MYPYPATH=str(ROOT), PYTHONPATH="",
    )  # fmt: skip
    found = {int(line) for line in re.findall(r"^wrong\.py:(\d+): error", ran.stdout, re.MULTILINE)}
    wrong = {number for number, line in enumerate(WRONG.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, ran.stdout + ran.stderr
    assert "right.py" not in ran.stdout
