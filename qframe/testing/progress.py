"""Whether a harness gets anywhere."""

from __future__ import annotations

from typing import Final

from qframe.errors import NeverIdle
from qframe.testing.comparison import listed
from qframe.testing.journal import Journal
from qframe.testing.store import JournalledStore

MOST_IN_VAIN: Final = 50_000


class Progress:
    """Counts what a harness tries in vain, so that each of its loops ends.

    Args:
        journal: says when something is handed out, called, settled or published.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._seen = 0
        self._in_vain = 0

    def begin(self) -> None:
        """Counts from zero."""
        self._in_vain = 0

    def step(self, store: JournalledStore) -> None:
        """Counts a step, or a time at which something was due.

        Raises:
            NeverIdle: if there were very many since the journal has noted something.
        """
        self._in_vain += 1
        if self._seen != self._journal.noted:
            self._seen, self._in_vain = self._journal.noted, 0
        if self._in_vain > MOST_IN_VAIN:
            raise NeverIdle(listed(store.unfinished()), "steps without progress", MOST_IN_VAIN)
