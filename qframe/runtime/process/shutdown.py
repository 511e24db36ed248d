"""The order in which a worker stops: nothing is lost, nothing is counted that did not run."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from qframe.clock import Clock
from qframe.runtime.consume.consumer import Consumer
from qframe.service import LAST_WORDS_S

_LOOK_EVERY_S = 0.01


def terminate(consumers: list[Consumer], *, grace_s: Callable[[], float], clock: Clock) -> None:
    """Stops consumers: no more pulling; handlers finish; the rest goes back; slots are left.

    1. Every pull loop stops.
    2. Messages that no handler has begun are given back, uncounted.
    3. Running handlers, and messages taken over with `auto_ack = False`, have `grace_s` to end.
       A message that they want to retry at once goes back as well. A slot of which nothing is in
       flight any more is passed on at once, however long the handlers of others take.
    4. Messages whose handlers still run are cancelled and given back, uncounted. An effect that is
       being finished then has 5 s more: given back, its message could be counted and handled.
    5. The settlers send the rest, under renewed leases; then the slots are released.
    6. Shared parts end when all consumers have left: their checkers may be in the event loop.

    Args:
        consumers: the worker's.
        grace_s: how long running handlers may go on, in seconds; asked again and again.
        clock: for the grace.
    """
    for consumer in consumers:
        consumer.pull_loop.ask_to_stop()
    for consumer in consumers:
        consumer.pull_loop.stop(LAST_WORDS_S)
        consumer.slots.retire()
    since_s = clock.monotonic_s()
    pause = Event()
    while True:
        for consumer in consumers:
            consumer.give_back()
            consumer.slots.pass_on()
        if all(consumer.is_quiet() for consumer in consumers):
            break
        if clock.monotonic_s() >= since_s + grace_s():
            _abandon(consumers, pause, clock)
            break
        pause.wait(_LOOK_EVERY_S)
    for consumer in consumers:
        consumer.stop_handling()
    for consumer in consumers:
        if not consumer.settler.stop(LAST_WORDS_S):
            consumer.settler.abandon()
    for consumer in consumers:
        consumer.renewal.stop(LAST_WORDS_S)
        consumer.leave()
    for consumer in consumers:
        consumer.close()


def _abandon(consumers: list[Consumer], pause: Event, clock: Clock) -> None:
    """Cancels what runs, and waits until all that is given back or finished has been sent."""
    for consumer in consumers:
        consumer.abandon()
    until_s = clock.monotonic_s() + LAST_WORDS_S
    while clock.monotonic_s() < until_s and not all(each.is_settled() for each in consumers):
        pause.wait(_LOOK_EVERY_S)
        for consumer in consumers:
            consumer.give_back()  # an effect that could not be finished
