"""Processes under test: what they say, who their children are, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from eventually import eventually

WITHIN_S = 300.0  # what hangs is found; how quick the machine is, is not the question


def state_of(pid: int) -> str:
    """A process's state, as `ps` shows it; Z if it is dead or there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def is_gone(pid: int) -> bool:
    return state_of(pid) == "Z"


def title_of(pid: int) -> str:
    """What `ps` shows as a process's command line."""
    with suppress(FileNotFoundError, ProcessLookupError):
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        return line.replace(b"\0", b" ").decode().strip()
    return ""


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                if int(fields[1]) == pid and fields[0] != "Z":
                    found.append(int(entry.name))
    return sorted(found)


def descendants_of(pid: int) -> set[int]:
    children = children_of(pid)
    return {*children, *(each for child in children for each in descendants_of(child))}


def send(number: int, pid: int) -> None:
    """Sends a signal to a process, which may have ended just now."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Running:
    """A process that tells events, a JSON object in a line each; it and its children are killed
    in the end, if need be.
    """

    def __init__(
        self, command: Sequence[str], directory: Path, environment: dict[str, str]
    ) -> None:
        self.lines: list[str] = []
        self._seen: set[int] = set()
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        left = self._seen | descendants_of(self.pid)
        for pid in self._seen:
            left |= descendants_of(pid)
        self._process.kill()
        self._process.wait()
        for pid in left:
            if not is_gone(pid):
                send(signal.SIGKILL, pid)
        self._reader.join(WITHIN_S)
        # To close what is being read would wait for the reader, without end.
        assert not self._reader.is_alive(), "a process that it started still has its output"
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def children(self) -> list[int]:
        """The process ids of its children that live."""
        now = children_of(self.pid)
        self._seen |= set(now)
        return now

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """What it has told so far, of one name or all."""
        told = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [event for event in told if name is None or event["event"] == name]

    def wait_for(self, name: str, times: int = 1) -> list[dict[str, Any]]:
        """The events of a name, once there are so many."""
        eventually(lambda: len(self.events(name)) >= times, within=WITHIN_S)
        return self.events(name)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def code(self) -> int:
        """Its exit code, once it has ended and all that it said is read."""
        code = self._process.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        return code
