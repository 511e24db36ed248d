"""Planted faults in ports, console and push."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

PORTS: Final[list[Mutant]] = []
