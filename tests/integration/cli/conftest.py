"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program in an empty directory."""
    return Program(tmp_path)
