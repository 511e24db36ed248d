"""Planted faults in what a newer version has written."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

NEWER: Final[list[Mutant]] = []
