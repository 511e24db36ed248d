"""Asking before something is gone for good."""

from __future__ import annotations

import sys

import typer


def ask(question: str) -> None:
    """Goes on if the answer is yes; asks on stderr, so that stdout stays the command's own."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.stderr.write("nothing was dropped\n")
        raise typer.Exit(1)
