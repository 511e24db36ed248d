"""The planted faults that are kept: each is one change that a later hand might make."""

from __future__ import annotations

from typing import Final

from mutants.answers import ANSWERS
from mutants.batchers import BATCHERS
from mutants.bounds import BOUNDS
from mutants.drivers import DRIVERS
from mutants.edges import EDGES
from mutants.failing_over import FAILING_OVER
from mutants.growth import GROWTH
from mutants.guards import GUARDS
from mutants.harnesses import HARNESSES
from mutants.keeping_and_copying import KEEPING_AND_COPYING
from mutants.lost import LOST
from mutants.mutant import Mutant
from mutants.newer import NEWER
from mutants.operators import OPERATORS
from mutants.parts import PARTS
from mutants.ports import PORTS
from mutants.queues import QUEUES
from mutants.runtime import RUNTIME
from mutants.schedules import SCHEDULES
from mutants.simulated import SIMULATED
from mutants.slimming import SLIMMING
from mutants.slips import SLIPS
from mutants.standing import STANDING
from mutants.stores import STORES
from mutants.survived import SURVIVED
from mutants.sweeping import SWEEPING
from mutants.timing import TIMING
from mutants.watching import WATCHING
from mutants.wording import WORDING

KEPT: Final[list[Mutant]] = [
    *RUNTIME, *STORES, *SURVIVED, *GUARDS, *PARTS, *GROWTH, *STANDING, *SCHEDULES, *SLIPS,
    *DRIVERS, *OPERATORS, *EDGES, *FAILING_OVER, *KEEPING_AND_COPYING, *SWEEPING, *TIMING,
    *WATCHING, *BATCHERS, *SLIMMING, *LOST, *SIMULATED,
    *BOUNDS, *QUEUES, *PORTS, *NEWER, *ANSWERS, *HARNESSES, *WORDING,
]  # fmt: skip
