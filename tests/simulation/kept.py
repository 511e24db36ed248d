"""Seeds of faults that are mended, each with the planted fault of `mutants` that it finds.

Another turn anywhere makes another run of a seed: `make mutants ARGS=--kept` says which of these do
not find their faults any more, and are to be replaced by others that do, or taken out where a
test of its own finds the fault.
"""

from __future__ import annotations

from typing import Final

KEPT: Final = {
    1392: "a slot whose split is begun anew keeps no order",
    90071297: "what overran its time and was taken back is marked as it returns",
    6000548: "a slot stands again under a receipt by which it may have been answered",
}
