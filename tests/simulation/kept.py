"""Seeds of faults that are mended, each with the planted fault of `mutants` that it finds.

Another turn anywhere makes another run of a seed: `make mutants ARGS=--kept` says which of these do
not find their faults any more, and are to be replaced by others that do.
"""

from __future__ import annotations

from typing import Final

KEPT: Final = {
    94916: "slots pass on with a pull in doubt",
    630: "who stops leaves a pull in doubt",
    68072: "what its user has not acknowledged is marked at the end of a stop",
    6605: "what was settled first is told as lost where its handler ends in a renewal",
    89615: "what is given back goes to the store behind a retry that has taken it along",
}
