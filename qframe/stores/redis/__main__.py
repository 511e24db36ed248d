"""`python -m qframe.stores.redis NAME` writes a script, for producers in other languages."""

from __future__ import annotations

import sys

from qframe.drivers.scripts import script

sys.stdout.write(script("qframe.stores.redis", sys.argv[1]).text)
