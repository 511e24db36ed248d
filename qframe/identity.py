"""Names of workers: unique to each start, and telling enough to see that one is dead."""

from __future__ import annotations

import os
import re
import secrets
import socket
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_DEAD_STATES: Final = "ZX"


def new_worker_id() -> str:
    """`<host>-<pid>-<12 hexadecimal digits>`: the first six name the machine's start."""
    return f"{host_name()}-{os.getpid()}-{_machine()}{secrets.token_hex(3)}"


def host_name() -> str:
    """This host's name, in the characters that names may have here, and no longer than they."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())[:40] or "host"


def host_of(worker_id: str) -> str:
    """The host in a worker's id."""
    return worker_id.rsplit("-", 2)[0]


def is_neighbour(worker_id: str) -> bool:
    """Whether a worker runs, or ran, on this machine, as another process."""
    return (pid := _pid_here(worker_id)) is not None and pid != os.getpid()


def is_dead(worker_id: str) -> bool:
    """Whether a worker has ended for sure: it ran on this machine, and its process is gone."""
    if (number := _pid_here(worker_id)) is None:
        return False
    try:
        # The state stands behind the name, which may hold anything, brackets too.
        state = Path(f"/proc/{number}/stat").read_text(encoding="latin-1").rpartition(")")[2]
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return state.split()[0] in _DEAD_STATES


@lru_cache(maxsize=1024)  # every look at a roster asks for each member
def _pid_here(worker_id: str) -> int | None:
    """The number of a worker's process, if that is or was one of this machine."""
    try:
        _, pid, mark = worker_id.rsplit("-", 2)
        return int(pid) if mark[:6] == _machine() else None
    except ValueError:
        return None


@cache
def _machine() -> str:
    """Six digits for this start of this machine, and for who can see whose processes there.

    Where the system does not tell them they are random, so that nobody is taken for dead.
    """
    try:
        seen = _BOOT.read_text() + str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return secrets.token_hex(3)
    return sha256(seen.encode()).hexdigest()[:6]
