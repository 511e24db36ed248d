"""Planted faults in what one caller of the SQS front may hold."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

QUEUES: Final[list[Mutant]] = []
