"""The planted faults that are kept: each is one change that a later hand might make."""

from __future__ import annotations

from typing import Final

from mutants.drivers import DRIVERS
from mutants.growth import GROWTH
from mutants.guards import GUARDS
from mutants.mutant import Mutant
from mutants.operators import OPERATORS
from mutants.parts import PARTS
from mutants.runtime import RUNTIME
from mutants.schedules import SCHEDULES
from mutants.slips import SLIPS
from mutants.standing import STANDING
from mutants.stores import STORES
from mutants.survived import SURVIVED

KEPT: Final[list[Mutant]] = [
    *RUNTIME, *STORES, *SURVIVED, *GUARDS, *PARTS, *GROWTH, *STANDING, *SCHEDULES, *SLIPS,
    *DRIVERS, *OPERATORS,
]  # fmt: skip
