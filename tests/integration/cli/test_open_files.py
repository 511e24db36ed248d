"""The limit of open files: a worker raises its own, and one that meets it says how to raise it."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from cli_program import WITHIN_S, Program
from redis_servers import RedisServer

CONSUMERS = 40
LIMIT = 120
MANY = f"""
import subprocess
import sys

from qframe import Message, Topic, consumer, publish

ASKED = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"


def handle(message: Message) -> None:
    asked = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, check=True)
    with open("limits.txt", "ab") as file:
        file.write(asked.stdout)


for number in range({CONSUMERS}):
    consumer(Topic(f"topic-{{number}}", slots=1), group="g", threads=1)(handle)
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.write("many.py", MANY)
    return program


def limited(
    program: Program, redis: RedisServer, limit: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """Runs the worker with other limits, to its end."""
    command = [sys.executable, "-m", "qframe", "worker", "many", "--burst", *words]
    return subprocess.run(
        ["sh", "-c", f'ulimit {limit} {LIMIT}; exec "$@"', "sh", *command],
        cwd=program.directory,
        env=program.environment(QFRAME_STORE=redis.url, QFRAME_NAMESPACE=program.directory.name),
        capture_output=True,
        encoding="utf-8",
        timeout=WITHIN_S,
        check=False,
    )


@pytest.mark.parametrize("words", [(), ("--processes", "2")])
def test_a_worker_raises_its_limit_for_itself_and_the_processes_that_it_starts(
    program: Program, redis_server: RedisServer, words: tuple[str, ...]
) -> None:
    place = {"QFRAME_STORE": redis_server.url, "QFRAME_NAMESPACE": program.directory.name}
    program.ok("topics", "declare", "topic-3", "--slots", "1", **place)
    program.ok("publish", "topic-3", "1", **place)
    ran = limited(program, redis_server, "-S -n", *words)
    assert ran.returncode == 0, ran.stderr[-2000:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (program.directory / "limits.txt").read_text() == f"{hard} {hard}\n"


@pytest.mark.parametrize("words", [(), ("--processes", "2")])
def test_a_start_that_meets_the_limit_says_so_in_a_line_with_the_remedy(
    program: Program, redis_server: RedisServer, words: tuple[str, ...]
) -> None:
    ran = limited(program, redis_server, "-n", *words)
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    (said,) = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
    assert "Too many open files" in said
    assert f"this process may have {LIMIT} files open: raise that limit (ulimit -n" in said
    assert "or run fewer consumers in a process" in said
