"""Planted faults in the harness and the options of handlers."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

HARNESSES: Final[list[Mutant]] = []
