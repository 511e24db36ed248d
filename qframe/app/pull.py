"""`app.pull`: messages for a loop of the user's own.

A pull is a worker with one consumer; the user's loop is its handler. It shares the slots of its
group with all other workers and keeps the same promises: order per key, renewed leases, fencing,
retries, dead letters. Leaving the block stops it without grace: messages that are not settled are
given back, uncounted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Self, TypedDict, cast

import msgspec

from qframe.coordination.base import Coordinator, OnFailure
from qframe.durations import with_unit
from qframe.errors import BadOption, WorkerFailed
from qframe.forks import Forks
from qframe.identity import new_worker_id
from qframe.message import Message
from qframe.options.consumer import OnDead, check_topic, consumer_options
from qframe.options.rules import refuse_unknown
from qframe.retry import Backoff
from qframe.runtime.demand import Demand
from qframe.runtime.handler.spec import ConsumerSpec, OnSettled
from qframe.tags import AllOf
from qframe.topic import Topic, checked_name, duration_ms

if TYPE_CHECKING:
    from qframe.app.assembly import Assembly
    from qframe.runtime.executors.pull_buffer import PullBuffer
    from qframe.runtime.handler.attempt import Attempt
    from qframe.runtime.process.worker import Worker

_AS_LONG_AS_IT_TAKES_S: Final = 365 * 86_400.0
_IN_A_WITH: Final = "use it as `with app.pull(topic, group) as messages:`"


class PullKeywords(TypedDict, total=False):
    """The keyword arguments of `pull`; `Pull` and `ConsumerOptions` tell what they mean."""

    timeout: float | str | None
    max_in_flight: int
    max_attempts: int
    backoff: Backoff | float | str
    lease: float | str
    start: Literal["earliest", "latest"]
    serial: bool
    tags: str | Collection[str] | AllOf | None
    on_dead: OnDead | None
    broadcast: bool
    broadcast_expires: float | str
    keep_order: bool
    max_parked: int


class Pulls:
    """The pulls of an app that are in use, so that it can end them when it is closed."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: list[Pull] = []
        Forks.add(self._begin_anew)

    def add(self, pull: Pull) -> None:
        """Notes one that begins."""
        with self._guard:
            self._open.append(pull)

    def discard(self, pull: Pull) -> None:
        """Forgets one that has ended."""
        with self._guard:
            self._open = [each for each in self._open if each is not pull]

    def close(self) -> None:
        """Ends all of them."""
        for pull in list(self._open):
            pull.close()

    def _begin_anew(self) -> None:
        """Has none in the child of a fork."""
        self._guard, self._open = threading.Lock(), []


class Pull:
    """The messages of a topic for a group: `with app.pull("orders", "billing") as messages:`.

    Each is settled by its `ack`, from any thread; many may be open at once, and the next of a key
    comes when the one before it is settled. `message.ack(error=…)` retries it, or lets it die.
    Leaving the block gives back, uncounted, what is not settled. A pull works in any thread, and
    leaves signals alone.

    Args:
        topic: a topic, or the name of one.
        group: the group; whoever else consumes for it shares its messages.
        options: `timeout`, after which a loop ends if no message has come (seconds, or a text such
            as "5s"; by default never); and, as of `consumer`, `max_in_flight`, `max_attempts`,
            `backoff`, `lease`, `start`, `serial`, `tags`, `on_dead`, `broadcast`,
            `broadcast_expires`, `keep_order`, `max_parked`.
        make_assembly: makes what a worker is made of, given who opens its coordinator.
        open_coordinator: opens the coordinator of a worker.
        pulls: the app's.
        on_settled: called with deliveries and what the store has said of their settlements, from
            a thread of the pull.
        demand: how much it may read; as much as fits if there is none.

    Raises:
        BadOption: if an option is unknown or wrong.
    """

    def __init__(
        self,
        topic: Topic | str,
        group: str,
        options: PullKeywords,
        *,
        make_assembly: Callable[[Callable[[OnFailure], Coordinator]], Assembly],
        open_coordinator: Callable[[str, OnFailure], Coordinator],
        pulls: Pulls,
        on_settled: OnSettled | None = None,
        demand: Demand | None = None,
    ) -> None:
        of_consumer: dict[str, Any] = dict(options)
        self._timeout_s = _seconds(of_consumer.pop("timeout", None))
        self._spec = _spec_of(topic, group, of_consumer, on_settled, demand)
        self._make_assembly = make_assembly
        self._open_coordinator = open_coordinator
        self._pulls = pulls
        self._worker_id = new_worker_id()
        self._coordinator: Coordinator | None = None
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._ending = threading.Lock()
        self._grace_s = _AS_LONG_AS_IT_TAKES_S
        self._retires = False
        self._is_parents = False
        Forks.add(self._begin_anew)

    def __enter__(self) -> Self:
        """Subscribes the group, joins, and begins to pull.

        Raises:
            BadOption: if it was entered before.
            UnknownTopic: if nobody has declared the topic.
            StoreUnavailable: if the store cannot be reached.
        """
        if self._worker is not None:
            raise BadOption(
                "pull", "entered twice", "a pull can be used only once", "call app.pull again"
            )
        self._pulls.add(self)
        try:
            self._worker = worker = self._make_worker()
            name = f"qframe.pulling.{self._spec.topic_name}.{self._spec.group}"
            self._thread = threading.Thread(
                target=self._serve, args=(worker,), name=name, daemon=True
            )
            self._thread.start()
            self._ready.wait()
        except BaseException:
            self.close()
            if self._worker is None and self._coordinator is not None:
                self._coordinator.close()
            raise
        if self._failure is not None:
            self.close()
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends it.

        Raises:
            WorkerFailed: if a part of it had failed, and the block has raised nothing.
        """
        self.close()
        if self._failure is not None and error is None:
            raise self._failure

    def __iter__(self) -> Iterator[Message]:
        """The messages, until none has come for `timeout`, or the pull has ended."""
        return _Loop(self)

    @with_unit("timeout")
    def take(self, timeout: float | str | None = None) -> Message | None:
        """The next message; None if none has come in time, or the pull has ended.

        Args:
            timeout: how long to wait: a text such as "500ms", or by keyword a number of seconds; by
                default the pull's own.

        Raises:
            BadOption: if it is called outside of the block, or `timeout` is not a duration.
            WorkerFailed: if a part of the pull has failed.
        """
        limit_s = self._timeout_s if timeout is None else _seconds(timeout)
        buffer = self._buffer()
        message = buffer.take(limit_s)
        if message is None and buffer.closed and not self._retires and self._thread is not None:
            self._thread.join()
            if self._failure is not None:
                raise self._failure
        return message

    def look(self) -> int:
        """Has it look at its slots now, from any thread; `has_looked` says when it has."""
        return self._worker.consumers[0].pull_loop.look() if self._worker is not None else 1

    def has_looked(self, number: int, taken: int) -> bool:
        """Whether all that it has found since `look` was taken.

        Args:
            number: what `look` has returned.
            taken: how many messages have been taken from it in all.
        """
        if self._worker is None or self._worker.consumers[0].pull_loop.looked < number:
            return False
        return self._buffer().is_empty_after(taken)

    def is_certain(self) -> bool:
        """Whether nobody else can have what it has handed out, by this worker's own clock.

        If not, all that is cancelled.
        """
        return self._worker is not None and self._worker.consumers[0].slots.certain()

    def put_back(self, messages: Collection[Message]) -> None:
        """Gives back messages that were taken, and that nobody has seen; from any thread.

        They are handed out anew, here or, if it ends before that, elsewhere, as the same attempts.
        """
        if self._worker is not None:
            self._worker.consumers[0].put_back(cast("Collection[Attempt]", messages))

    def retire(self) -> None:
        """Takes nothing more, and ends once all that was taken is settled, or at a `close`.

        Each slot goes to others once nothing of it is in hand. Waits for the end.
        """
        self._retires = True
        self._end(_AS_LONG_AS_IT_TAKES_S)

    def close(self) -> None:
        """Ends it, from any thread: loops end, what was not settled is given back, uncounted."""
        self._end(0.0)
        self._pulls.discard(self)

    def _end(self, grace_s: float) -> None:
        worker, thread = self._worker, self._thread
        if worker is not None:
            self._buffer().stop()
            with self._ending:
                self._grace_s = min(self._grace_s, grace_s)  # a `close` is final
                worker.stop(grace_s=self._grace_s)
        if thread is not None and thread.ident is not None:
            thread.join()

    def _begin_anew(self) -> None:
        """Refuses to be used in the child of a fork, where its threads are not."""
        Forks.keep(self._worker, self._thread, self._coordinator)
        self._is_parents = self._worker is not None
        self._worker = self._thread = self._coordinator = None

    def _buffer(self) -> PullBuffer:
        if self._is_parents:
            why = "it was opened before a fork, and its threads stayed in the parent"
            raise BadOption("pull", self._spec.topic_name, why, "open one in the child")
        if self._worker is None:
            raise BadOption("pull", "outside its block", "it is not open", _IN_A_WITH)
        return cast("PullBuffer", self._worker.consumers[0].executor)

    def _make_worker(self) -> Worker:
        assembly = self._make_assembly(self._join)
        settings = replace(assembly.settings, grace=0.0)
        alone = msgspec.structs.replace(
            assembly, consumers=[self._spec], outboxes=(), settings=settings
        )
        return alone.worker(self._worker_id)

    def _join(self, on_failure: OnFailure) -> Coordinator:
        self._coordinator = self._open_coordinator(self._worker_id, on_failure)
        return self._coordinator

    def _serve(self, worker: Worker) -> None:
        """Its thread."""
        try:
            worker.run(on_ready=self._ready.set)
        except BaseException as error:  # raised again where somebody hears it
            self._failure = error
        finally:
            self._buffer().stop()
            self._ready.set()
            if self._coordinator is not None:
                self._coordinator.close()


class _Loop:
    """One `for` over a pull. It holds no message itself, so that a message let go is noticed."""

    def __init__(self, pull: Pull) -> None:
        self._pull = pull
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        message = None if self._ended else self._pull.take()
        if message is None:
            self._ended = True
            raise StopIteration
        return message


def _spec_of(
    topic: Topic | str, group: str, options: dict[str, Any], on_settled: OnSettled | None,
    demand: Demand | None,
) -> ConsumerSpec:  # fmt: skip
    """Checks the options of a pull, and returns them as those of a consumer."""
    if not isinstance(topic, Topic):
        checked_name(topic, "topic")
    checked_name(group, "group")
    for name in options:
        if name not in PullKeywords.__annotations__:
            refuse_unknown("pull option", name, PullKeywords.__annotations__, "pull")
    checked = consumer_options(auto_ack=False, **options)
    if isinstance(topic, Topic):
        check_topic(checked, topic)
    return ConsumerSpec(
        topic, group, _no_handler, _no_handler, checked, is_pulled=True, on_settled=on_settled,
        demand=demand,
    )  # fmt: skip


def _no_handler(message: Message) -> NoReturn:
    raise WorkerFailed(f"pull of {message.topic}", "a pulled message was passed to a handler")


def _seconds(timeout: float | str | None) -> float | None:
    return None if timeout is None else duration_ms(timeout, "timeout") / 1000
