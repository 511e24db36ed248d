"""What a shell is told to complete: commands, and names of the store that the command is for."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
from cli_program import ORDERS, Program

from qframe import Topic


def completed(program: Program, line: str, shell: str = "bash") -> list[str]:
    """The words that the program offers for the last word of a line, which may be empty."""
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    # fish tells the word itself, bash and zsh its number.
    asked = words[-1] if shell == "fish" else str(len(words) - 1)
    ran = program.run(_QFRAME_COMPLETE=f"{shell}_complete", COMP_WORDS=line, COMP_CWORD=asked)
    assert (ran.code, ran.err) == (0, ""), ran
    lines = ran.out.rstrip("\n").splitlines()
    if shell == "zsh":  # a type, a value and its help, each in a line
        return lines[1::3]
    return [each.partition(",")[2] for each in lines]


@pytest.fixture
def shop(program: Program) -> Program:
    """A store with two topics, of which one has two groups, and a schedule."""
    with program.app() as app:
        app.declare(Topic("mails", slots=1))
        app.declare(ORDERS)
        for group in ("billing", "books"):
            app.store.subscribe(ORDERS, group)
        app.schedules.put("nightly", "@daily", topic="mails")
    return program


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("qframe wo", ["worker", "workers"]),
        ("qframe keys ", ["pause", "resume", "skip", "unblock"]),
        ("qframe topics show --w", ["--watch"]),
        ("qframe topics show o", ["orders"]),
        ("qframe groups list ma", ["mails"]),
        ("qframe store copy orders m", ["mails"]),
        ("qframe groups tune orders ", ["billing", "books"]),
        ("qframe keys skip orders bi", ["billing"]),
        ("qframe slots list orders bo", ["books"]),
        ("qframe groups tune mails ", []),
        ("qframe schedules show n", ["nightly"]),
        ("qframe --namespace other topics show o", []),
        ("qframe topics show --namespace other o", []),
        ("qframe topics show --store sqlite:///absent.db o", []),
        ("qframe nope ou", ["outbox"]),
        ("qframe topics resize --partitions 4 o", ["orders"]),
    ],
)
def test_a_shell_completes_commands_and_the_names_that_the_store_has(
    shop: Program, line: str, offered: list[str]
) -> None:
    assert completed(shop, line) == offered
    assert not (shop.directory / "absent.db").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_of_the_page_gets_a_script_and_names(shop: Program, shell: str) -> None:
    script = shop.run(_QFRAME_COMPLETE=f"{shell}_source")
    assert script.code == 0
    assert f"_QFRAME_COMPLETE={shell}_complete" in script.out
    assert completed(shop, "qframe groups list o", shell) == ["orders"]


def test_bash_itself_completes_a_name(shop: Program) -> None:
    program = shop.directory / "qframe"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m qframe "$@"\n')
    program.chmod(0o755)
    script = """
eval "$(_QFRAME_COMPLETE=bash_source qframe)"
complete -p qframe
COMP_WORDS=(qframe groups tune orders bi) COMP_CWORD=4
_qframe_completion qframe
echo "${COMPREPLY[@]}"
"""
    path = f"{shop.directory}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=shop.directory, env=shop.environment(PATH=path),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = "complete -o nosort -F _qframe_completion qframe\nbilling\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, said, "")
