"""`qframe groups tune`: a group's workers changed while they run."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import msgspec

from qframe.app.qframe import QFrame
from qframe.cli.flags import AsJson, By, GroupName, TopicName
from qframe.cli.output import counted, say, say_json
from qframe.cli.target import Target, targeted
from qframe.errors import BadOption
from qframe.options.tuning import RESET, Tuning
from qframe.verbs.parameters import option

Threads = Annotated[
    str | None,
    option(metavar="N", help="How many handlers run at once in each worker, or reset."),
]
Rate = Annotated[
    str | None,
    option(metavar="RATE", help="How often handlers start, such as 100/s, or reset."),
]
InFlight = Annotated[
    str | None,
    option(metavar="N", help="How many messages each worker holds at once, or reset."),
]
Reset = Annotated[bool, option("--reset", help="Reset all of these to the code's values first.")]

WITHIN = "workers apply this within 2 s"


@targeted
def tune(
    target: Target,
    topic: TopicName,
    group: GroupName,
    threads: Threads = None,
    rate: Rate = None,
    in_flight: InFlight = None,
    reset: Reset = False,
    by: By = None,
    as_json: AsJson = False,
) -> None:
    """Changes or shows how a group's workers run.

    They follow within 2 s, and workers that start later obey too. Without options it only shows.
    """
    given: dict[str, Any] = {
        "threads": _number("threads", threads), "rate": rate,
        "in_flight": _number("in flight", in_flight),
    }  # fmt: skip
    if reset:
        given = {name: RESET if value is None else value for name, value in given.items()}
    changes = any(value is not None for value in given.values())
    with target.acting(by) as (app, admin):
        if changes:
            admin.tune(topic, group, **given)
        show_tuning(app, topic, group, as_json=as_json, changed=changes)


def marked(name: str, *, paused: bool) -> str:
    """A group's name, or a consumer's; one that is paused is marked."""
    return f"{name} (paused)" if paused else name


def in_words(tuning: Tuning) -> str:
    """The live settings in one line; empty if the code's values hold."""
    values = {
        "threads": tuning.threads, "rate": tuning.rate, "in flight": tuning.in_flight
    }  # fmt: skip
    words = [f"{name} {value}" for name, value in values.items() if value is not None]
    if tuning.reader is not None:
        words.append("follows a Spark query")
    if tuning.keys:
        words.append(f"{counted(len(tuning.keys), 'key')} paused")
    return ", ".join(["paused"] * tuning.paused + words)


def show_tuning(app: QFrame, topic: str, group: str, *, as_json: bool, changed: bool) -> None:
    """Shows what is set for a group."""
    tuning = app.admin.tuned(topic, group)
    if as_json:
        say_json({"topic": topic, "group": group, **msgspec.to_builtins(tuning)})
    else:
        follow = f"; {WITHIN}" if changed else ""
        say(f"{topic}/{group}: {in_words(tuning) or 'as in its code'}{follow}")


def _number(name: str, text: str | None) -> int | Literal["reset"] | None:
    if text is None or text == RESET:
        return cast("Literal['reset'] | None", text)
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadOption(name, text, "it is not a whole number", f"use a number, or {RESET}")
    return int(text)
