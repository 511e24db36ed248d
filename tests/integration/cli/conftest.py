"""What tests of the command line share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Program
from processes import Running


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program in an empty directory."""
    return Program(tmp_path)


@pytest.fixture
def start(program: Program) -> Callable[..., Running]:
    """Starts the program beside the test, with some words and variables."""

    def start(*words: str, **variables: str) -> Running:
        command = [sys.executable, "-m", "qframe", *words]
        return Running(command, program.directory, program.environment(**variables))

    return start
