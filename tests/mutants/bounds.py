"""Planted faults in what one caller of the gateway may hold."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

BOUNDS: Final[list[Mutant]] = []
