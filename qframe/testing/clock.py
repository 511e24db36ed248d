"""The clock of a harness."""

from __future__ import annotations

from qframe.clock import SYSTEM_CLOCK, VirtualClock


class SteppedClock(VirtualClock):
    """Wall time stands still until it is told to move; the other time goes on as well.

    By the latter threads of the user's wait for each other, as in `app.buffered`, and they would
    for ever if it stood still.
    """

    def monotonic_s(self) -> float:
        """Seconds since some moment, virtual and real ones together."""
        return SYSTEM_CLOCK.monotonic_s() + super().monotonic_s()

    @property
    def moved_s(self) -> float:
        """The virtual ones alone."""
        return super().monotonic_s()


class StandingClock:
    """A stepped clock both of whose times stand still until it is told to move.

    Args:
        clock: the stepped clock.
    """

    def __init__(self, clock: SteppedClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""
        return self._clock.now_ms()

    def monotonic_s(self) -> float:
        """Virtual seconds since the clock was made."""
        return self._clock.moved_s
