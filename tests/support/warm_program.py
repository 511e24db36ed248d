"""`python -m qframe` without its start: a server has imported it all, and forks for each run.

Nearly all of a command's time is imports. A forked child gets the words, the directory, the
environment and the three standard streams of its run, leaves the server's loop, runs `qframe` as
`python -m` does, and ends as any interpreter ends: tracebacks, threads and what is registered for
the end are Python's own affair. Only the very last step is left out: a child that has nothing more
to say does not take its objects apart, which would copy most of the memory that it shares with the
server and cost four times as much as a whole command. Another module may run in place of `qframe`,
where one is named: Alembic's imports are nearly the same.

The server has one thread, so that forking it is sound, and ends with whoever has started it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

# The program, and what it loads by itself in nearly all tests.
IMPORTED = ("qframe.cli.main", "qframe.app.assembly", "qframe.stores.sql.store")
STREAMS = ("stdin", "stdout", "stderr")
PIPE_BYTES = 65536  # what a pipe takes without anybody who reads


class WarmProgram:
    """The server of one process that runs tests; one run at a time."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._line, theirs = socket.socketpair()
        env = {name: value for name, value in os.environ.items() if not name.startswith("QFRAME_")}
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=env,
            )  # fmt: skip
        self._answers = self._line.makefile("r", encoding="utf-8")

    def run(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: str,
        timeout_s: float,
        module: str = "qframe",
    ) -> subprocess.CompletedProcess[str]:
        """What `subprocess.run` answers, for a short stdin; one that takes too long is killed."""
        told = stdin.encode()
        assert len(told) <= PIPE_BYTES, "so long a text needs a run of its own"
        given, out, err = os.pipe(), os.pipe(), os.pipe()
        os.write(given[1], told)
        os.close(given[1])
        asked = json.dumps(
            {"module": module, "words": list(words), "cwd": str(cwd), "env": dict(env)}
        )
        theirs = [given[0], out[1], err[1]]
        socket.send_fds(self._line, [b"!"], theirs)
        for fd in theirs:
            os.close(fd)
        until_s = time.monotonic() + timeout_s
        try:
            self._line.sendall(f"{asked}\n".encode())
            said = _read([out[0], err[0]], until_s)
            self._line.settimeout(max(0.01, until_s - time.monotonic()))
            code = int(self._answers.readline())
        except BaseException as error:
            self.stop()
            self._start()  # else the next one would read this one's answer
            if isinstance(error, TimeoutError):
                raise subprocess.TimeoutExpired(list(words), timeout_s) from None
            raise
        finally:
            os.close(out[0])
            os.close(err[0])
        self._line.settimeout(None)
        return subprocess.CompletedProcess(list(words), code, *(_text(each) for each in said))

    def stop(self) -> None:
        """Ends the server, and with it a run that has not ended."""
        self._answers.close()
        self._line.close()
        self._server.wait()


def _read(fds: Sequence[int], until_s: float) -> list[bytes]:
    """All that comes out of each pipe until nobody holds its other end."""
    said = {fd: bytearray() for fd in fds}
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0, until_s - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                chunk = os.read(key.fd, PIPE_BYTES)
                said[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
    return [bytes(said[fd]) for fd in fds]


def _text(said: bytes) -> str:
    """As a stream that is read as text tells it."""
    return said.decode().replace("\r\n", "\n").replace("\r", "\n")


def serve(line: socket.socket) -> dict[str, Any]:
    """Forks for each request, and answers how it ended; returns in the children alone."""
    requests = line.makefile("r", encoding="utf-8")
    while True:
        _, streams, *_ = socket.recv_fds(line, 1, len(STREAMS))
        asked = requests.readline()
        if not asked:
            sys.exit()
        ended, held = os.pipe()  # its end is told when the child, which holds the other, is gone
        pid = os.fork()
        if pid == 0:
            os.close(ended)
            requests.close()
            line.close()
            for number, fd in enumerate(streams):
                os.dup2(fd, number)
                os.close(fd)
            request: dict[str, Any] = json.loads(asked)
            return request
        for fd in (held, *streams):
            os.close(fd)
        code = _await(line, pid, ended)
        os.close(ended)
        line.sendall(f"{code}\n".encode())


def _await(line: socket.socket, pid: int, ended: int) -> int:
    """A child's exit code, or its signal as a negative number; it dies if nobody waits for it."""
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        if ended not in [key.fd for key, _ in selector.select()]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            sys.exit()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def become(request: Mapping[str, Any]) -> None:
    """Makes this process look as `python -m qframe` finds itself."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[0] = request["cwd"]
    sys.argv = [request["module"], *request["words"]]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    for number, name in enumerate(STREAMS):
        stream = _opened(number, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _opened(number: int, old: Any) -> TextIOWrapper:
    """A standard stream as an interpreter opens it that was started like this one."""
    is_unbuffered = old.write_through
    binary: Any = open(  # noqa: SIM115 - it stays open till the end
        number, "wb" if number else "rb", buffering=0 if is_unbuffered and number else -1,
        closefd=False,
    )  # fmt: skip
    is_by_line = not is_unbuffered and (number == 2 or os.isatty(number))
    stream: Any = TextIOWrapper(
        binary, encoding=old.encoding, errors=old.errors, line_buffering=is_by_line,
        write_through=is_unbuffered,
    )  # fmt: skip
    stream.mode = old.mode
    return stream


def end_early(codes: list[int]) -> None:
    """Ends the process when threads and all that was registered for the end are through.

    It is registered before all else, so it is called last. Python itself ends what is not plain,
    such as a code that has to be printed, or a stream that cannot be written.
    """
    if codes:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(codes[0])


def main() -> NoReturn:
    """Serves, and in each child runs the program."""
    codes: list[int] = []
    atexit.register(end_early, codes)
    program, *_ = [import_module(name) for name in IMPORTED]
    program.cli.make_context("qframe", ["topics", "list"])  # what it imports to read words
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()  # children share these pages as long as nobody writes to them
    try:
        request = serve(socket.socket(fileno=int(sys.argv[1])))
    except ConnectionError:
        sys.exit()  # nobody asks any more
    become(request)
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            codes.append((ended.code or 0) & 0xFF)
        raise
    codes.append(0)
    sys.exit()


if __name__ == "__main__":
    main()
