"""The order in which a worker stops: nothing is lost, nothing is counted that did not run."""

from __future__ import annotations

from threading import Event

from qframe.clock import Clock
from qframe.runtime.consume.line import Line

_LOOK_EVERY_S = 0.01
_LAST_WORDS_S = 5.0


def terminate(lines: list[Line], *, grace_s: float, clock: Clock) -> None:
    """Stops lines: no more pulling; running handlers finish; the rest goes back; slots are left.

    1. Every pull loop stops.
    2. Messages that no handler has begun are given back, uncounted.
    3. Running handlers, and messages taken over with `auto_ack = False`, have `grace_s` to end.
       A message that they want to retry at once goes back as well.
    4. Messages whose handlers still run are cancelled and given back, uncounted.
    5. The settlers send the rest, under renewed leases; then the slots are released.
    6. Shared parts end when all lines have left: their checkers may be in the event loop.

    Args:
        lines: the worker's.
        grace_s: how long running handlers may go on, in seconds.
        clock: for the grace.
    """
    for line in lines:
        line.pull_loop.ask_to_stop()
    for line in lines:
        line.pull_loop.stop(_LAST_WORDS_S)
    until_s = clock.monotonic_s() + grace_s
    pause = Event()
    while True:
        for line in lines:
            line.give_back()
        if all(line.is_quiet() for line in lines):
            break
        if clock.monotonic_s() >= until_s:
            for line in lines:
                line.abandon()
            break
        pause.wait(_LOOK_EVERY_S)
    for line in lines:
        line.pool.stop(0)
    for line in lines:
        if not line.settler.stop(_LAST_WORDS_S):
            line.settler.abandon()
    for line in lines:
        line.renewal.stop(_LAST_WORDS_S)
        line.leave()
    for line in lines:
        line.close()
