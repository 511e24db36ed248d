"""Planted faults in words that point the right way."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

WORDING: Final[list[Mutant]] = []
