"""Lines that many processes append to a file, each by a single write, however they end.

What was handed to the system needs no process any more. But Linux lets a SIGKILL end a write where
a page of the file ends (`generic_perform_write`), and a reader may come in between: so a whole line
is known by its last byte, and begins with a line's end as well, so that a torn one spoils no other.
To be killed while telling a fact is to be killed before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

END = b"\x04"


def append(file: int, line: bytes) -> None:
    """Appends a line to a file that was opened with O_APPEND."""
    if os.write(file, written := b"\n" + line + END + b"\n") != len(written):
        raise OSError("a line was cut short: is the disk full?")


def whole(lines: Iterable[bytes]) -> list[bytes]:
    """Those of what stands between line ends that are whole, as they were given."""
    return [line[: -len(END)] for line in lines if line.endswith(END)]


def read(path: Path) -> list[bytes]:
    """The whole lines of a file, as they were given; none if there is no file yet."""
    return whole(path.read_bytes().split(b"\n")) if path.exists() else []
