"""The options of one `@consumer`, once: name, type, default, bounds and help of each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, TypedDict

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from qframe.errors import BadOption
from qframe.hooks import Middleware, is_async, middleware_given
from qframe.message import Message
from qframe.options.batch import Batch
from qframe.options.flow import Breaker, RateLimit, rate_limit_of
from qframe.options.rules import MaybeSeconds, Rule, Seconds, refuse_unknown, translated
from qframe.retry import Backoff
from qframe.tags import AllOf, Tags, tags_wanted

MOST_THREADS: Final = 1024
MOST_IN_FLIGHT: Final = 100_000
AWAITED_AT_ONCE: Final = 100

OnDead = Callable[[Message, BaseException], object]

_CHECKER_RULE = Rule("a checker, or the name of one registered with app.checker")
_TAGS_RULE = Rule("a tag, a list of tags of which any will do, or AllOf(…)", '"gold"')
_MIDDLEWARE_RULE = Rule("a Middleware, or a list of them")
_BACKOFF_RULE = Rule("a Backoff, or its first wait: seconds, or a string such as '2s'")
_BREAKER_RULE = Rule('a Breaker, such as Breaker(failures=10, pause="30s")', "Breaker()")
_BYTES_RULE = Rule("a whole number", "67108864")
_RATE_RULE = Rule('a RateLimit, or a rate such as "100/s", "6000/m", "50/h"', '"100/s"')


_BATCH_RULE = Rule("a Batch, such as Batch(500, '50ms')", "Batch(500, '50ms')")


def _backoff(value: Any) -> Any:
    return value if isinstance(value, Backoff) else Backoff(first=value)


class ConsumerOptions(BaseModel):
    """The options of one consumer, checked; made by `consumer_options`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        arbitrary_types_allowed=True, extra="forbid", frozen=True, strict=True
    )

    threads: int = Field(
        8, ge=1, le=100_000,
        description=f"How many handlers run at once, at most {MOST_THREADS} plain ones; "
        f"by default {AWAITED_AT_ONCE} async ones.",
    )  # fmt: skip
    max_attempts: int = Field(
        16, ge=1, le=1000, description="How many deliveries a message gets before it is dead."
    )
    backoff: Annotated[Backoff, BeforeValidator(_backoff), _BACKOFF_RULE] = Field(
        default_factory=Backoff,
        description="How long a message waits after a failure.",
    )
    lease: Seconds = Field(
        30.0, ge=0.2, le=86_400,
        description="How long after its worker's death a message is due again, in seconds.",
    )  # fmt: skip
    auto_ack: bool = Field(
        True, description="Whether a message is settled when its handler returns."
    )
    max_in_flight: int = Field(
        3000, ge=1, le=MOST_IN_FLIGHT,
        description="How many messages a worker holds at once; more with batch=.",
    )  # fmt: skip
    start: Literal["earliest", "latest"] = Field(
        "earliest", description="Where a new group begins."
    )
    broadcast: bool = Field(
        False, description="Whether every instance gets every message, by default from latest on."
    )
    broadcast_expires: Seconds = Field(
        604_800.0, ge=60, le=366 * 86_400,
        description="How long the group of an unused broadcast instance is kept, in seconds.",
    )  # fmt: skip
    serial: bool = Field(
        False,
        description="Whether a slot's messages are handled one at a time, whatever their keys.",
    )
    on_dead: OnDead | None = Field(
        None,
        description="Called with the message and its error when it becomes a dead letter.",
    )
    idempotent_checker: Annotated[Any, _CHECKER_RULE] = Field(
        None, description="Recognises repeated messages and acknowledges them unhandled."
    )
    timeout: MaybeSeconds = Field(
        None, ge=0.001, le=86_400,
        description="How long a handler may run before it is cancelled: see docs/async.md.",
    )  # fmt: skip
    rate_limit: Annotated[RateLimit | None, BeforeValidator(rate_limit_of), _RATE_RULE] = Field(
        None, description="How often the handler may start: see docs/flow.md."
    )
    breaker: Annotated[Breaker | None, _BREAKER_RULE] = Field(
        None,
        description="Pauses the consumer after some failures in a row: see docs/flow.md.",
    )
    max_in_flight_bytes: Annotated[int | None, _BYTES_RULE] = Field(
        None, ge=65_536, le=2**40,
        description="How many bytes of bodies it holds at once; by default the app's option.",
    )  # fmt: skip
    batch: Annotated[Batch | None, _BATCH_RULE] = Field(
        None, description="How many messages the handler gets at once: see docs/batching.md."
    )
    tags: Annotated[Tags | None, BeforeValidator(tags_wanted), _TAGS_RULE] = Field(
        None,
        description="Which messages are handled, by their tags; others are acknowledged unhandled.",
    )
    middleware: Annotated[
        tuple[Middleware, ...], BeforeValidator(middleware_given), _MIDDLEWARE_RULE
    ] = Field(
        (),
        description="Called around the handler, inside the app's middleware: "
        "see docs/middleware.md.",
    )
    local_retries: int = Field(
        3, ge=0, le=1_000_000,
        description="How often NeedRetry() calls the handler again in this worker, at most.",
    )  # fmt: skip
    at_most_once: bool = Field(
        False, description="Whether a message is settled before its handler is called."
    )

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds, as stores take it."""
        return round(self.lease * 1000)


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
    fields = ConsumerOptions.model_fields
    for name in given:
        if name not in fields:
            refuse_unknown("consumer option", name, fields)
    if given.get("broadcast") is True:
        given.setdefault("start", "latest")
    elif "broadcast_expires" in given:
        raise BadOption(
            "broadcast_expires", given["broadcast_expires"], "only a broadcast consumer's group "
            "expires", "add broadcast=True, or leave it out",
        )  # fmt: skip
    _allow_for_batches(given)
    try:
        options = ConsumerOptions(**given)
    except ValidationError as error:
        raise translated(ConsumerOptions, error, lambda name: (name, given[name])) from None
    if options.at_most_once:
        _check_alone(options)
    if is_async(options.on_dead):
        raise BadOption(
            "on_dead", options.on_dead, "it is async, and on_dead is not awaited",
            "use a plain function; it may publish a message for an async consumer",
        )  # fmt: skip
    return options


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


def _check_alone(options: ConsumerOptions) -> None:
    """Refuses what has no meaning where a message is settled before it is handled."""
    at_odds = (
        ("auto_ack", options.auto_ack is False, "the message is already acknowledged"),
        ("idempotent_checker", options.idempotent_checker is not None, "nothing comes again"),
        ("batch", options.batch is not None, "a failed batch is retried one by one"),
    )
    for name, is_given, why in at_odds:
        if is_given:
            raise BadOption(
                name, getattr(options, name), f"with at_most_once=True {why}",
                "leave one of the two out",
            )  # fmt: skip
