"""Real worker processes that start at once, because they are forked from one that is ready.

Importing takes as long as the workers of these tests live. So a process imports what they need,
starts no thread, and forks a worker whenever it is told to. It is their parent: it kills them,
knows how they have ended, and ends with them all when its input does, as it does when the test is
killed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Self

from eventually import eventually

ROOT = Path(__file__).parents[2]


class Child:
    """One worker."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    def code(self) -> int | None:
        """How it ended, as `subprocess` tells it; None while it lives."""
        code: int | None = self._nursery.ask("code", self.pid)
        return code

    def join(self, within: float) -> int:
        """Waits for its end."""
        eventually(lambda: self.code() is not None, within=within)
        code = self.code()
        assert code is not None
        return code

    def kill(self) -> None:
        """Ends it as a crash would; it is gone when this returns."""
        self._nursery.ask("kill", self.pid)

    def terminate(self) -> None:
        """Asks it to end."""
        os.kill(self.pid, signal.SIGTERM)

    def freeze(self) -> None:
        """It does nothing any more, and does not know it."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on where it was."""
        os.kill(self.pid, signal.SIGCONT)


class Nursery:
    """Starts workers that call `work(*arguments)` of a module.

    Args:
        module: the module.
        log: what they write to their errors' stream.
    """

    def __init__(self, module: str, log: Path) -> None:
        path = os.pathsep.join(sys.path)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "nursery", module],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        self.ask("ready")

    def start(self, *arguments: str) -> Child:
        """Forks a worker."""
        return Child(self, self.ask("start", *arguments))

    def ask(self, *words: Any) -> Any:
        """The process's answer to one line."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(words) + "\n")
        stdin.flush()
        return json.loads(stdout.readline())

    def close(self) -> None:
        """Kills all workers."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> None:
    """The process: does what each line of its input says, until that ends."""
    # The collector leaves alone what is imported: it would take a tenth of each worker's time, and
    # copy the memory that they share.
    gc.disable()
    work = importlib.import_module(sys.argv[1]).work
    gc.freeze()
    codes: dict[int, int | None] = {}
    for line in sys.stdin:
        match json.loads(line):
            case ["start", *arguments]:
                answer = os.fork()
                if answer == 0:
                    _be_worker(work, arguments)
                codes[answer] = None
            case ["code", pid]:
                answer = codes[pid] = codes[pid] if codes[pid] is not None else _code(pid)
            case ["kill", pid]:
                answer = codes[pid] = codes[pid] if codes[pid] is not None else _killed(pid)
            case _:
                answer = None
        print(json.dumps(answer), flush=True)  # noqa: T201 - it is how it answers
    for pid in [pid for pid, code in codes.items() if code is None]:
        _killed(pid)


def _code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _killed(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _be_worker(work: Any, arguments: list[str]) -> None:
    gc.enable()
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        work(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
