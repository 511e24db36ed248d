"""The folder of a run: its messages and its statistics."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def use(folder: Path, store: str | None = None) -> None:
    """Names the store and the statistics' database, for this process and those it starts.

    The app and the handlers read the names when they are imported, so this comes first.

    Args:
        folder: where the databases are.
        store: another store for the messages, such as redis://localhost; in a namespace of this
            run, since the proof counts everything that there is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["QFRAME_STORE"] = store or f"sqlite:///{folder.resolve() / 'flights.db'}"
    if store:
        os.environ["QFRAME_NAMESPACE"] = f"flights-{secrets.token_hex(4)}"
    os.environ["FLIGHTS_DATABASE"] = f"sqlite:///{folder.resolve() / 'flights-statistics.db'}"
