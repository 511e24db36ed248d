"""The limit of open files: raised when a command starts, and named where a process has met it.

Most systems let a process have 1,024 files open, for the sake of programs that call `select()`, and
let it raise that limit itself. A consumer has some six: pipes and connections.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import resource

_MET: Final = os.strerror(errno.EMFILE)
_MET_BY_ALL: Final = os.strerror(errno.ENFILE)  # the limit of the whole system; another text


def raise_limit() -> None:
    """Raises this process's soft limit to its hard one, as Go's runtime does.

    Processes that it starts inherit the limit.
    """
    if sys.platform != "win32":
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError, OSError):  # where a system's own limit is lower than the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_files() -> int:
    """How many files this process may have open at once."""
    if sys.platform == "win32":
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def lack_of_files(needed: int) -> str | None:
    """The system's words for it, where so many more files cannot be opened."""
    with ExitStack() as opened:
        try:
            for _ in range(needed):
                opened.enter_context(Path(os.devnull).open())
        except OSError as error:
            return str(error)
    return None


def remedy_for(why: object, usual: str) -> str:
    """The remedy for an error: to raise the limit where its text says that it was met."""
    text = str(why)
    if sys.platform == "win32" or _MET not in text or _MET_BY_ALL in text:
        return usual
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"this process may have {soft} files open: raise that limit (ulimit -n, LimitNOFILE=), "
        "or run fewer consumers in a process, and more processes"
    )
