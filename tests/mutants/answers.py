"""Planted faults in what answers say, and leave out."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

ANSWERS: Final[list[Mutant]] = []
