"""A handler's parameters are filled by annotation, and what cannot be filled is refused at once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any, List  # noqa: UP035 - as older code has it

import msgspec
import pytest
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from qframe.codec import encode_headers
from qframe.errors import BadHandler, UndecodableBody
from qframe.hooks import check_result
from qframe.message import Delivery, Message
from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.handler.binding import bind, bind_batch, name_of


class Line:
    topic = "t"
    group = "g"

    def acknowledge(self, *_: object) -> None: ...
    def extend(self, *_: object) -> None: ...


def message(body: bytes, raw: bool = False) -> Attempt:
    headers = encode_headers(None, None, raw, max_body=1000)
    return Attempt(Delivery("m1", "k", headers, body, 1000, 3, None, 7, "r", 2), Line())


@dataclass
class Order:
    id: int
    status: str = "new"


class Bench:
    """No type of a body."""


class Point(msgspec.Struct):
    x: int


def takes_message(m: Message) -> Any:
    return m.id, m.topic, m.group, m.slot, m.attempt, m.key, m.body


def takes_both(order: Order, m: Message) -> Any:
    return order, m.id


def takes_both_the_other_way(m: Message, order: Order) -> Any:
    return order, m.id


def takes_dict(body: dict[str, int]) -> Any:
    return body


def takes_struct(point: Point, verbose: bool = True) -> Any:
    return point, verbose


def takes_anything(body: Any) -> Any:
    return body


def takes_bytes(body: bytes) -> Any:
    return body


def takes_nothing() -> Any:
    return "called"


@pytest.mark.parametrize(
    ("function", "body", "result"),
    [
        (takes_message, b'{"a":1}', ("m1", "t", "g", 3, 2, "k", {"a": 1})),
        (takes_both, b'{"id":5}', (Order(5), "m1")),
        (takes_both_the_other_way, b'{"id":5}', (Order(5), "m1")),
        (takes_dict, b'{"a":1}', {"a": 1}),
        (takes_struct, b'{"x":1}', (Point(1), True)),
        (takes_anything, b"[1]", [1]),
        (takes_bytes, b"[1]", b"[1]"),
        (takes_nothing, b"1", "called"),
    ],
)
def test_parameters_get_what_their_annotations_ask_for(
    function: Callable[..., Any], body: bytes, result: Any
) -> None:
    assert bind(function)(message(body)) == result


@pytest.mark.parametrize("function", [takes_bytes, takes_anything])
def test_bytes_come_as_they_were_published(function: Callable[..., Any]) -> None:
    assert bind(function)(message(b"\xff\x00", raw=True)) == b"\xff\x00"


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("function", "body", "raw"),
    [
        (takes_both, b'{"id":"five"}', False),
        (takes_both, b"not json", False),
        (takes_both, b"{}", True),
        (takes_anything, b"not json", False),
    ],
)
def test_a_body_that_does_not_fit_is_told_as_such(
    function: Callable[..., Any], body: bytes, raw: bool
) -> None:
    with pytest.raises(UndecodableBody, match="of message"):
        bind(function)(message(body, raw))


def no_annotation(body): ...  # type: ignore[no-untyped-def]
def two_bodies(a: dict[str, int], b: list[int]) -> None: ...
def keyword_only(*, body: dict[str, int]) -> None: ...
def unknown_type(body: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821
def wants_perhaps_a_message(message: Message | None) -> None: ...


def not_decodable(body: list[int] | set[int]) -> None: ...
def not_json(body: Bench) -> None: ...
def the_message_twice(a: Message, b: Message) -> None: ...
def only_stars(*args: object, **kwargs: object) -> None: ...
def stars_and_an_option(*args: object, retries: int = 3, **kwargs: object) -> None: ...


class Yielding:
    def __call__(self, message: Message) -> Iterator[int]:
        yield 1


class Called:
    def __call__(self, m: Message) -> str:
        return m.id


class Desk:
    def handle(self, message: Message) -> str:
        return message.id


def test_a_class_of_a_functions_own_is_to_be_defined_in_the_module() -> None:
    """As tests do; with postponed annotations nobody finds it by its name."""

    class Parcel: ...

    def handle(parcel: Parcel) -> None: ...

    with pytest.raises(
        BadHandler, match=r"name 'Parcel' is not defined.*or define .* in the modul"
    ):
        bind(handle)


@pytest.mark.promise(8)
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_annotation, "has no annotation; annotate it"),
        (two_bodies, "two of its parameters would receive the body"),
        (keyword_only, "it is keyword-only"),
        (unknown_type, "its annotations cannot be read"),
        (wants_perhaps_a_message, "a message is always there"),
        (not_decodable, "a body cannot be decoded as this type"),
        (not_json, "nothing in JSON is decoded to"),
        (the_message_twice, "two parameters ask for the message"),
        (42, "it cannot be called"),
        (lambda body: body, "write a def: the parameters of a lambda cannot be annotated"),
        (
            Desk.handle,
            r"Desk.handle\(self\)': it has no annotation; register the bound method of an obj",
        ),
        (Desk, "Desk': it is a class"),
        (only_stars, r"add @functools.wraps\(handler\) to it"),
        (stars_and_an_option, r"add @functools.wraps\(handler\) to it"),
        (Yielding(), "it is a generator function, and calling it runs nothing"),
    ],
)
def test_what_cannot_be_filled_is_refused_when_it_is_registered(function: Any, text: str) -> None:
    with pytest.raises(BadHandler, match=text):
        bind(function)


def takes_a_positive(number: Annotated[int, msgspec.Meta(gt=0)]) -> int:
    return number


def takes_positives(numbers: list[Annotated[int, msgspec.Meta(gt=0)]]) -> list[int]:
    return numbers


def takes_annotated_message(m: Annotated[Message, "for a framework"]) -> str:
    return m.id


def takes_perhaps_a_dict(body: dict[str, int] | None) -> None: ...


@pytest.mark.promise(8)
def test_what_an_annotation_says_beside_a_type_counts() -> None:
    assert bind(takes_a_positive)(message(b"1")) == 1
    assert bind(takes_annotated_message)(message(b"1")) == "m1"
    for function, body in ((takes_a_positive, b"-1"), (takes_positives, b"[1,-1]")):
        with pytest.raises(UndecodableBody, match="Expected `int` >= 1"):
            bind(function)(message(body))


def test_an_error_names_the_whole_type() -> None:
    with pytest.raises(UndecodableBody, match=r"decoded as dict\[str, int\] \| None \("):
        bind(takes_perhaps_a_dict)(message(b"1"))


def takes_a_number_first(number: int, m: Message, suffix: str) -> str:
    return f"{number} {m.id} {suffix}"


def wrapped_with_its_name(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def test_partials_methods_of_objects_and_wrapped_functions_are_handlers_too() -> None:
    partial = functools.partial(takes_a_number_first, 3, suffix="!")
    assert bind(partial)(message(b"1")) == "3 m1 !"
    assert name_of(partial) == f"{__name__}.takes_a_number_first"
    assert name_of(takes_nothing).endswith("test_binding.takes_nothing")
    assert bind(Desk().handle)(message(b"1")) == bind(Called())(message(b"1")) == "m1"
    assert bind(wrapped_with_its_name(takes_both))(message(b'{"id":5}')) == (Order(5), "m1")


def wants_batch(messages: list[Message]) -> Any:
    return messages


def wants_annotated_batch(messages: Annotated[list[Message], "for a framework"]) -> Any:
    return messages


def wants_batch_of_typing(messages: List[Message]) -> Any:  # noqa: UP006 - as older code has it
    return messages


def wants_batch_and_session(messages: list[Message], session: Session) -> Any:
    return messages, session


def wants_connection_and_batch(connection: Connection, messages: list[Message]) -> Any:
    return messages, connection


def wants_bodies(orders: list[Order]) -> None: ...
def wants_two_batches(one: list[Message], two: list[Message]) -> None: ...
def wants_session_alone(session: Session) -> None: ...
def wants_nothing() -> None: ...
def wants_batch_and_body(messages: list[Message], order: Order) -> None: ...


ONE = r"asks for one list\[Message\], and at most one Session"
NO_BATCH = r"its consumer has batch=.*annotate it: list\[Message\]"


@pytest.mark.parametrize(
    ("binds", "function", "words"),
    [
        (bind, wants_batch, r"add batch=Batch\(500, '50ms'\) to the consumer"),
        (bind_batch, wants_bodies, r"a batch is not list\[.*Order\]; annotate it"),
        *[(bind_batch, each, NO_BATCH) for each in (takes_message, takes_dict, wants_bodies)],
        (bind_batch, wants_batch_and_body, NO_BATCH),
        *[
            (bind_batch, each, ONE)
            for each in (wants_two_batches, wants_session_alone, wants_nothing)
        ],
    ],
)
def test_what_is_no_handler_of_batches_is_refused(
    binds: Callable[..., Any], function: Any, words: str
) -> None:
    with pytest.raises(BadHandler, match=words):
        binds(function)


def test_a_batch_is_given_as_it_is_and_its_transaction_is_that_of_all() -> None:
    messages = [message(b"1"), message(b"2")]
    for each in messages:
        each.claim(SimpleNamespace(transaction=SimpleNamespace(session="s", connection="c")))
    for function in (wants_batch, wants_annotated_batch, wants_batch_of_typing):
        assert bind_batch(function)(messages) is messages
    assert bind_batch(wants_batch_and_session)(messages) == (messages, "s")
    assert bind_batch(wants_connection_and_batch)(messages) == (messages, "c")


async def agenerator() -> Any:
    yield 1


async def coroutine_() -> None: ...


async def coroutine(order: Order, m: Message) -> Any:
    return order, m.id


def test_an_async_functions_parameters_are_filled_in_the_same_way() -> None:
    assert asyncio.run(bind(coroutine)(message(b'{"id":5}'))) == (Order(5), "m1")  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [lambda: (n for n in "x"), lambda: agenerator(), coroutine_])
def test_a_result_that_has_still_to_run_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(BadHandler, match=r"^result <.*(nobody awaits it|nothing of it has run)"):
        check_result(make())
