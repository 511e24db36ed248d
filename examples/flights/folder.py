"""Where a run keeps its two databases."""

from __future__ import annotations

import os
from pathlib import Path


def use(folder: Path) -> None:
    """Names the store and the statistics' database, for this process and those it starts.

    The app and the handlers read the names when they are imported, so this comes first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["QFRAME_STORE"] = f"sqlite:///{folder.resolve() / 'flights.db'}"
    os.environ["FLIGHTS_DATABASE"] = f"sqlite:///{folder.resolve() / 'flights-statistics.db'}"
