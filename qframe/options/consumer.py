"""The options of one `@consumer`, once: name, type, default, bounds and help of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, TypedDict

from qframe.errors import BadOption
from qframe.hooks import Middleware, is_async, middleware_given, takes
from qframe.message import Message
from qframe.options.batch import Batch
from qframe.options.flow import Breaker, RateLimit, rate_limit_of
from qframe.options.rules import (
    CALLABLE,
    FLAG,
    CheckedOptions,
    Rule,
    checked_options,
    instance,
    maybe,
    one_of,
    options_of,
    refuse_unknown,
    seconds,
    whole,
)
from qframe.retry import Backoff
from qframe.tags import AllOf, Tags, tags_wanted
from qframe.topic import Kind, Topic

MOST_THREADS: Final = 1024
MOST_IN_FLIGHT: Final = 100_000
AWAITED_AT_ONCE: Final = 100
ON_DEAD_TRIES: Final = 3  # it may be the reason why workers die

OnDead = Callable[[Message, BaseException], object]


def _backoff(value: Any) -> Any:
    if isinstance(value, Backoff):
        return value
    try:
        return Backoff(first=value)
    except BadOption as error:
        raise ValueError from error  # the text of the rule names a Backoff as well


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(CheckedOptions):
    """The options of one consumer, checked; made by `consumer_options`."""

    threads: Annotated[
        int,
        whole(1, 100_000),
        f"How many handlers run at once, at most {MOST_THREADS} plain ones; "
        f"by default {AWAITED_AT_ONCE} async ones.",
    ] = 8
    max_attempts: Annotated[
        int, whole(1, 1000), "How many deliveries a message gets before it is dead."
    ] = 16
    backoff: Annotated[
        Backoff,
        Rule("a Backoff, or its first wait: seconds, or a string such as '2s'", _backoff),
        "How long a message waits after a failure.",
    ] = field(default_factory=Backoff)
    lease: Annotated[
        float,
        seconds(0.2, 86_400),
        "How long after its worker's death a message is due again, in seconds.",
    ] = 30.0
    auto_ack: Annotated[bool, FLAG, "Whether a message is settled when its handler returns."] = True
    max_in_flight: Annotated[
        int, whole(1, MOST_IN_FLIGHT), "How many messages a worker holds at once; more with batch=."
    ] = 3000
    start: Annotated[
        Literal["earliest", "latest"], one_of("earliest", "latest"), "Where a new group begins."
    ] = "earliest"
    broadcast: Annotated[
        bool, FLAG, "Whether every instance gets every message, by default from latest on."
    ] = False
    broadcast_expires: Annotated[
        float,
        seconds(60, 366 * 86_400),
        "How long the group of an unused broadcast instance is kept, in seconds.",
    ] = 604_800.0
    serial: Annotated[
        bool, FLAG, "Whether a slot's messages are handled one at a time, whatever their keys."
    ] = False
    keep_order: Annotated[
        bool, FLAG, "Whether a delayed retry parks its key, on a stream: see docs/ordering.md."
    ] = False
    max_parked: Annotated[
        int,
        whole(1, 1_000_000),
        "With keep_order=True, how many messages may wait in a slot behind parked keys.",
    ] = 10_000
    on_dead: Annotated[
        OnDead | None,
        maybe(CALLABLE),
        "Called with the message and its error when it becomes a dead letter.",
    ] = None
    idempotent_checker: Annotated[
        Any,
        Rule("a checker, or the name of one registered with app.checker", lambda value: value),
        "Recognises repeated messages and acknowledges them unhandled.",
    ] = None
    timeout: Annotated[
        float | None,
        maybe(seconds(0.001, 86_400)),
        "How long a handler may run before it is cancelled: see docs/async.md.",
    ] = None
    rate_limit: Annotated[
        RateLimit | None,
        Rule('a RateLimit, or a rate such as "100/s", "6000/m", "50/h"', rate_limit_of, '"100/s"'),
        "How often the handler may start: see docs/flow.md.",
    ] = None
    breaker: Annotated[
        Breaker | None,
        maybe(
            instance(Breaker, 'a Breaker, such as Breaker(failures=10, pause="30s")', "Breaker()")
        ),
        "Pauses the consumer after some failures in a row: see docs/flow.md.",
    ] = None
    max_in_flight_bytes: Annotated[
        int | None,
        maybe(whole(65_536, 2**40, "67108864")),
        "How many bytes of bodies it holds at once; by default the app's option.",
    ] = None
    batch: Annotated[
        Batch | None,
        maybe(instance(Batch, "a Batch, such as Batch(500, '50ms')", "Batch(500, '50ms')")),
        "How many messages the handler gets at once: see docs/batching.md.",
    ] = None
    tags: Annotated[
        Tags | None,
        Rule("a tag, a list of tags of which any will do, or AllOf(…)", tags_wanted, '"gold"'),
        "Which messages are handled, by their tags; others are acknowledged unhandled.",
    ] = None
    middleware: Annotated[
        tuple[Middleware, ...],
        Rule("a Middleware, or a list of them", middleware_given),
        "Called around the handler, inside the app's middleware: see docs/middleware.md.",
    ] = ()
    local_retries: Annotated[
        int,
        whole(0, 1_000_000),
        "How often NeedRetry() calls the handler again in this worker, at most.",
    ] = 3
    at_most_once: Annotated[
        bool, FLAG, "Whether a message is settled before its handler is called."
    ] = False

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds, as stores take it."""
        return round(self.lease * 1000)

    @property
    def parked_at_most(self) -> int:
        """How many messages a slot of its group parks; 0 where it does not keep order."""
        return self.max_parked if self.keep_order else 0

    @property
    def deliveries_at_most(self) -> int:
        """How often the store hands a message out; those after `max_attempts` are for `on_dead`."""
        return self.max_attempts + (ON_DEAD_TRIES if self.on_dead is not None else 0)


class ConsumerKeywords(TypedDict, total=False):
    """The keyword arguments of `consumer`, for editors and type checkers."""

    threads: int
    max_attempts: int
    backoff: Backoff | float | str
    lease: float | str
    auto_ack: bool
    max_in_flight: int
    start: Literal["earliest", "latest"]
    on_dead: OnDead | None
    idempotent_checker: Any
    timeout: float | str | None
    rate_limit: RateLimit | str | None
    breaker: Breaker | None
    max_in_flight_bytes: int | None
    tags: str | Collection[str] | AllOf | None
    middleware: Middleware | type[Middleware] | Sequence[Middleware | type[Middleware]]
    broadcast: bool
    broadcast_expires: float | str
    batch: Batch | None
    serial: bool
    local_retries: int
    at_most_once: bool
    keep_order: bool
    max_parked: int


def checked_threads(threads: int, of: str = "a plain function") -> int:
    """The threads of a consumer whose handlers run in threads.

    Raises:
        BadOption: if there are more than one worker may have.
    """
    if threads > MOST_THREADS:
        raise BadOption(
            "threads", threads, f"{of} has a thread for each, and may have {MOST_THREADS}",
            f"use {MOST_THREADS} or fewer, or an async function of one message",
        )  # fmt: skip
    return threads


def consumer_options(**given: Any) -> ConsumerOptions:
    """The options of a consumer, checked, defaults filled in.

    Raises:
        BadOption: if one is unknown or out of its bounds.
    """
    known = options_of(ConsumerOptions)
    for name in given:
        if name not in known:
            refuse_unknown("consumer option", name, known, "consumer")
    if given.get("broadcast") is True:
        given.setdefault("start", "latest")
    elif "broadcast_expires" in given:
        raise BadOption(
            "broadcast_expires", given["broadcast_expires"], "only a broadcast consumer's group "
            "expires", "add broadcast=True, or leave it out",
        )  # fmt: skip
    if "max_parked" in given and given.get("keep_order") is not True:
        raise BadOption(
            "max_parked", given["max_parked"], "only a consumer that keeps order parks messages",
            "add keep_order=True, or leave it out",
        )  # fmt: skip
    _allow_for_batches(given)
    options = checked_options(ConsumerOptions, {name: (name, given[name]) for name in given})
    _check_pairs(options)
    if is_async(options.on_dead):
        raise BadOption(
            "on_dead", options.on_dead, "it is async, and on_dead is not awaited",
            "use a plain function; it may publish a message for an async consumer",
        )  # fmt: skip
    if options.on_dead is not None and not takes(options.on_dead, "message", "error"):
        raise BadOption(
            "on_dead", options.on_dead, "it cannot be called as on_dead(message, error)",
            "give a function of these parameters",
        )  # fmt: skip
    return options


def check_topic(options: ConsumerOptions, topic: Topic) -> None:
    """Checks options against the topic that they are for.

    Raises:
        BadOption: if the topic is of a kind for which one has no meaning.
    """
    if options.keep_order and topic.has_subjects:
        keeps = "keeps the order of keys by itself" if topic.kind is Kind.ORDERED else "has none"
        raise BadOption(
            "keep_order", True, f"{topic.name} is a topic of kind {topic.kind}, which {keeps}",
            "leave it out, or use a topic of kind stream",
        )  # fmt: skip


def _allow_for_batches(given: dict[str, Any]) -> None:
    """Lets as much be in flight as batches need, unless it is said how much may be.

    Raises:
        BadOption: if that is less than a batch.
    """
    batch, threads = given.get("batch"), given.get("threads", 8)
    if not isinstance(batch, Batch) or not isinstance(threads, int):
        return
    # While all threads have a batch the next ones are gathered.
    room = min(MOST_IN_FLIGHT, max(3000, 2 * batch.size * (max(0, threads) + 1)))
    most = given.setdefault("max_in_flight", room)
    if isinstance(most, int) and most < batch.size:
        raise BadOption(
            "max_in_flight", most, f"a batch of {batch.size} messages would never be full",
            f"use {batch.size} or more, or leave it out",
        )  # fmt: skip


def _check_pairs(options: ConsumerOptions) -> None:
    """Refuses what has no meaning beside another option."""
    once, single, given = options.at_most_once, options.max_attempts == 1, options.given
    at_odds = (
        ("auto_ack", once and not options.auto_ack, "the message is already acknowledged"),
        ("idempotent_checker", once and options.idempotent_checker is not None,
         "nothing comes again"),
        ("batch", once and options.batch is not None, "a failed batch is retried one by one"),
        ("local_retries", once and "local_retries" in given, "nothing is retried"),
        ("backoff", (once or single) and "backoff" in given, "nothing is retried"),
    )  # fmt: skip
    for name, is_given, why in at_odds:
        if is_given:
            other = "at_most_once=True" if once else "max_attempts=1"
            raise BadOption(
                name, getattr(options, name), f"with {other} {why}", "leave one of the two out"
            )
