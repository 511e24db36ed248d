"""Parameters: what a verb or a command takes, described once beside its type.

A parameter is described in the annotation of its function, `Annotated[str, argument("KEY", …)]`.
Its type, default and description are all that a door needs: the command line makes an argument or
an option of it, the console a field, the gateway a name in a JSON object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Completed = Literal["topic", "group", "schedule", "worker"]


@dataclass(frozen=True, kw_only=True)
class Param:
    """What a parameter is, beside its type and default.

    Attributes:
        help: what it is, in a sentence.
        metavar: the word that stands for its value, such as `TOPIC`; empty for a flag.
        flags: how an option is written, such as `--id`; by default its name.
        is_argument: whether it is given by its place on a command line.
        read: makes the value of a text; None where the type says how.
        least: the smallest number.
        most: the largest number.
        completes: the names that a shell completes it with.
        variable: the variable of the environment that gives it where nothing else does.
        is_hidden: whether help leaves it out.
        everything: the flag that stands for the text `all`, in place of values.
    """

    help: str = ""
    metavar: str = ""
    flags: tuple[str, ...] = ()
    is_argument: bool = False
    read: Callable[[str], Any] | None = None
    least: int | None = None
    most: int | None = None
    completes: Completed | None = None
    variable: str | None = None
    is_hidden: bool = False
    everything: str | None = None


def argument(
    metavar: str,
    help: str,  # noqa: A002 - as click calls it
    *,
    read: Callable[[str], Any] | None = None,
    completes: Completed | None = None,
    everything: str | None = None,
) -> Param:  # fmt: skip
    """A parameter that is given by its place: see `Param`."""
    return Param(
        help=help, metavar=metavar, is_argument=True, read=read, completes=completes,
        everything=everything,
    )  # fmt: skip


def option(
    *flags: str,
    metavar: str = "",
    help: str = "",  # noqa: A002
    least: int | None = None,
    most: int | None = None,
    read: Callable[[str], Any] | None = None,
    completes: Completed | None = None,
    variable: str | None = None,
    hidden: bool = False,
) -> Param:
    """A parameter that is given by its name: see `Param`."""
    return Param(
        help=help, metavar=metavar, flags=flags, least=least, most=most, read=read,
        completes=completes, variable=variable, is_hidden=hidden,
    )  # fmt: skip
