"""The order in which the messages of a subject's run are settled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.runtime.handler.retry_policy import Disposition

One = Delivery | Disposition
Run = dict[Delivery, One | None]


class SettlementOrder:
    """Keeps the disposition of a message until those before it in its run are settled.

    A store settles a run from its head on, and handlers of batches may end what they have in hand
    in any order. When one is to be retried the store takes the rest of its run back, whatever was
    said about it, so that order holds.

    Args:
        put: sends dispositions, in order; returns at once.
        gone: hears of deliveries that the store takes back with others.
    """

    def __init__(
        self, put: Callable[[One], None], gone: Callable[[list[Delivery]], object]
    ) -> None:
        self._put = put
        self._gone = gone
        self._guard = threading.Lock()
        self._runs: dict[tuple[str | None, str], Run] = {}

    def note(self, deliveries: Collection[Delivery]) -> None:
        """Records, in order, the deliveries that were handed out."""
        with self._guard:
            for one in deliveries:
                self._runs.setdefault((one.subject, one.receipt), {})[one] = None

    def settle(self, delivery: Delivery, disposition: One) -> list[Delivery]:
        """Sends a disposition when its turn has come; returns what goes back with a retried one."""
        name = delivery.subject, delivery.receipt
        with self._guard:
            run = self._runs.get(name)
            if run is None or delivery not in run:  # lost or taken back: let the store judge
                self._put(disposition)
                return []
            run[delivery] = disposition
            behind: list[Delivery] = []
            if isinstance(disposition, Disposition) and disposition.verdict is not Verdict.DEAD:
                behind = list(run)[list(run).index(delivery) + 1 :]
            for one in behind:
                del run[one]
            for one in list(run):
                if (next_one := run[one]) is None:
                    break
                del run[one]
                self._put(next_one)
            if not run:
                del self._runs[name]
            return behind

    def release(self, deliveries: Collection[Delivery]) -> None:
        """Gives deliveries back, uncounted, and with them what had ended before its turn.

        One that is not known here any more has gone back with one before it that is retried.
        """
        back = set(deliveries)
        with self._guard:
            for name in dict.fromkeys((one.subject, one.receipt) for one in deliveries):
                run = self._runs.pop(name, {})
                known = list(run)
                first = next((place for place, one in enumerate(known) if one in back), len(known))
                cut = [(one, run.pop(one)) for one in known[first:]]
                if run:
                    self._runs[name] = run
                if cut:
                    self._gone([one for one, end in cut[1:] if end is not None or one in back])
                    self._put(Disposition(cut[0][0], Verdict.RELEASE))

    def forget(self, lost: Collection[Delivery]) -> None:
        """Forgets what the store has taken away."""
        with self._guard:
            for one in lost:
                name = one.subject, one.receipt
                run = self._runs.get(name)
                if run is not None:
                    run.pop(one, None)
                    if not run:
                        del self._runs[name]
