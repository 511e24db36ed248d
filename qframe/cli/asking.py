"""Commands that remove for good: their choice of messages, and their question before."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from click.exceptions import Exit

from qframe.cli.commands import BadCommand


def ask(question: str) -> None:
    """Goes on if the answer is yes; asks on stderr, so that stdout stays the command's own."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("nothing was changed\n")
        raise Exit(1)


def check_chosen(command: str, ids: Sequence[str] | None, everything: bool, listing: str) -> None:
    """Sees that a command was given ids or --all, and not both.

    Raises:
        BadCommand: if it was not.
    """
    if everything and ids:
        raise BadCommand("command", command, "it was given both ids and --all", "give one of them")
    if not everything and not ids:
        raise BadCommand(
            "command", command, "it was given no message id", f"give ids from `{listing}`, or --all"
        )
