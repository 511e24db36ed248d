"""Runs the real program in a directory of its own."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from eventually import eventually as until_so
from warm_program import WarmProgram

from qframe import QFrame, Topic

WITHIN_S = 300  # what hangs is found; how quick the machine is, is not the question


def eventually(is_so: Callable[[], bool], *, within_s: float) -> None:
    """Returns when it is so."""
    until_so(is_so, within_s)


class Ran(NamedTuple):
    """How the program ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Program:
    """`python -m qframe`, in a directory, without QFRAME_ variables unless they are given."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("QFRAME_")}
        return {**kept, **variables}

    def run(self, *words: str, stdin: str = "", module: str = "qframe", **variables: str) -> Ran:
        """Runs it to its end: without its start, unless a variable is for the interpreter.

        Another `module` may run in its place, such as one that lies in the directory.
        """
        if any(not name.startswith("QFRAME_") for name in variables):
            return self.start(*words, stdin=stdin, **variables)
        env = self.environment(**variables)
        done = warm().run(
            words, module=module, cwd=self.directory, env=env, stdin=stdin, timeout_s=WITHIN_S
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, stdin: str = "", **variables: str) -> Ran:
        """The same from an interpreter's start on, which takes most of a second."""
        done = subprocess.run(
            [sys.executable, "-m", "qframe", *words],
            cwd=self.directory,
            env=self.environment(**variables),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=WITHIN_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, stdin: str = "", module: str = "qframe", **variables: str) -> Ran:
        ran = self.run(*words, stdin=stdin, module=module, **variables)
        assert ran.code == 0, ran
        return ran

    def refused(self, *words: str, stdin: str = "", code: int = 1, **variables: str) -> str:
        """The one line in which the program refuses; it must have written nothing else."""
        ran = self.run(*words, stdin=stdin, **variables)
        assert ran.code == code, ran
        assert ran.out == "", ran
        assert ran.err.startswith("error: "), ran
        assert ran.err.count("\n") == 1, ran
        return ran.err

    def app(self) -> QFrame:
        """An app on the same store in this process, to prepare and to look."""
        return QFrame(store=f"sqlite:///{self.directory}/qframe.db")

    def write(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text, encoding="utf-8")


@cache
def warm() -> WarmProgram:
    """One for all tests of this process."""
    started = WarmProgram()
    atexit.register(started.stop)
    return started


ORDERS = Topic("orders", kind="ordered", slots=4)
SHOP = """
from qframe import Message, Reject, Topic, consumer

orders = Topic("orders", kind="ordered", slots=4)


@consumer(orders, group="billing", max_attempts=1, threads=2)
def bill(message: Message) -> None:
    if message.body.get("bad"):
        raise ValueError(f"cannot bill {message.body}")
    if message.body.get("never"):
        raise Reject("no such customer")
    with open("handled.txt", "a") as file:
        file.write(f"{message.key} {message.body['n']}\\n")
"""
