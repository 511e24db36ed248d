"""Settings of a group's running consumers, which the store keeps as texts by name.

The same checks hold for who sets it and for the workers that read it, since a row may have been
written by hand, or by a later version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from qframe.errors import BadOption
from qframe.options.consumer import consumer_options
from qframe.options.flow import RateLimit
from qframe.options.hold import HOLD, Hold, hold_of

RESET: Final = "reset"
YES: Final = "yes"
STACKS: Final = "stacks_until_ms"
TAKEN: Final = "taken_ms"
STACKS_S: Final = 60.0
"""For how long workers report stacks once somebody has asked."""

READER: Final = "reader"
SPARK: Final = "spark"

Reset = Literal["reset"]


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a group's running consumers; None is the value in their code.

    Attributes:
        threads: how many handlers run at once in each worker.
        rate: how often a handler may begin, such as "100/s".
        in_flight: how many messages each worker holds at once.
        paused: whether nothing is handled until somebody resumes the group.
        hold: who paused the group, why, and since when; None where it is not paused.
        keys: the keys that are paused, by key: nothing of them is handled.
        stacks_until_ms: until when, by the store's clock, workers report where their handlers are
            in their code; None where nobody has asked for that.
        taken_ms: when somebody last took messages out of workers' hands, by the store's clock: they
            renew their leases at once, and so learn of it.
        reader: `spark` for a group that follows a streaming query of Spark, which no worker is to
            serve; None for a group of workers.
    """

    threads: int | None = None
    rate: str | None = None
    in_flight: int | None = None
    paused: bool = False
    hold: Hold | None = None
    keys: dict[str, Hold] = {}
    stacks_until_ms: int | None = None
    taken_ms: int | None = None
    reader: str | None = None

    @property
    def holds(self) -> list[Hold]:
        """The pause of the group, if there is one, and those of its keys."""
        return [*([self.hold] if self.hold is not None else ()), *self.keys.values()]


def texts_of(
    threads: int | Reset | None, rate: str | Reset | None, in_flight: int | Reset | None
) -> dict[str, str | None]:
    """The texts for a store to set; None changes nothing, `"reset"` restores the value in the code.

    Raises:
        BadOption: if a value would be refused of `@consumer` as well.
    """
    given: dict[str, object] = {"threads": threads, "rate": rate, "in_flight": in_flight}
    return {
        name: None if value == RESET else str(_checked(name, value))
        for name, value in given.items()
        if value is not None
    }


def tuning_of(texts: Mapping[str, str]) -> tuple[Tuning, list[BadOption]]:
    """Reads a store's texts; returns the settings, and what is wrong with the texts left out."""
    values: dict[str, object] = {}
    keys: dict[str, Hold] = {}
    wrong = []
    for name, text in texts.items():
        try:
            if name.partition(".")[0] != HOLD:
                values[name] = _read(name, text)
            elif (hold := hold_of(name, text)).key is None:
                values["hold"] = hold
            else:
                keys[hold.key] = hold
        except BadOption as error:
            wrong.append(error)
    values["hold"] = values.get("hold", Hold()) if values.get("paused") else None
    return Tuning(**values, keys=keys), wrong  # type: ignore[arg-type] # each was checked


def _read(name: str, text: str) -> object:
    if name == "paused":
        if text != YES:
            raise BadOption(name, text, f"it must be {YES!r}", "use qframe groups pause and resume")
        return True
    if name == READER and text == SPARK:
        return text
    if name in (STACKS, TAKEN) and text.isascii() and text.isdigit():
        return int(text[:15])
    number = name in ("threads", "in_flight") and text.isascii() and text.isdigit()
    return _checked(name, int(text[:9]) if number else text)


def _checked(name: str, value: object) -> object:
    if name == "rate":
        return RateLimit(value).rate  # type: ignore[arg-type] # it refuses what is no text
    if name == "threads":
        return consumer_options(threads=value).threads
    if name == "in_flight":
        return consumer_options(max_in_flight=value).max_in_flight
    raise BadOption("tuning", name, "there is no such setting", "use threads, rate, in_flight")
