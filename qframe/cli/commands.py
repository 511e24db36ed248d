"""What a command line may not be: one that lacks a word, or has words that do not fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from qframe.errors import BadOption


class BadCommand(BadOption):
    """Raised when a command line lacks a word, or has words that exclude each other.

    The exit code is 2.
    """


def check_states(named: Iterable[str], known: Collection[str]) -> None:
    """Sees that there are such states.

    Raises:
        BadCommand: if one is none.
    """
    for state in named:
        if state not in known:
            use = f"use one of {', '.join(known)}"
            raise BadCommand("--state", state, "there is no such state", use)


def check_one_of(command: str, options: Mapping[str, object], needs: str | None = None) -> None:
    """Sees that at most one of some options is given, and one where the command needs it.

    Args:
        command: the command's name.
        options: what each was given, by its name; None for nothing.
        needs: what the command lacks where none is given; None if it lacks nothing.

    Raises:
        BadCommand: otherwise.
    """
    given = _given(options)
    if len(given) > 1:
        raise BadCommand("command", command, f"it has {' and '.join(given)}", "give one of them")
    if needs is not None and not given:
        *others, last = options
        remedy = f"give {', '.join(others)} or {last}"
        raise BadCommand("command", command, f"it needs {needs}", remedy)


def check_beside(command: str, what: str, options: Mapping[str, object], remedy: str) -> None:
    """Sees that no option is given that does nothing beside another word.

    Raises:
        BadCommand: if one is.
    """
    if given := _given(options):
        why = f"beside {what} it has no use for {', '.join(given)}"
        raise BadCommand("command", command, why, f"leave that out, or {remedy}")


def _given(options: Mapping[str, object]) -> list[str]:
    return [name for name, value in options.items() if value is not None and value is not False]
