"""The order in which the messages of a subject's run, or of a parked key, are settled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable

from qframe.message import Delivery
from qframe.outcomes import Verdict
from qframe.runtime.handler.retry_policy import Disposition, releases
from qframe.runtime.order.parked_keys import ParkedKeys, stands_by_key

One = Delivery | Disposition
Run = dict[Delivery, One | None]


class SettlementOrder:
    """Keeps the disposition of a message until those before it in its run are settled.

    A store settles a run from its head on, and handlers of batches may end what they have in hand
    in any order. When one is to be retried the store takes the rest of its run back, whatever was
    said about it, so that order holds.

    Where a stream's group keeps order, all that a worker has of a key is one run, from the line or
    from behind the key. Each one of the line is given back by itself.

    Args:
        put: sends dispositions, in order; returns at once.
        gone: hears of deliveries that the store takes back with others.
        parked: the keys that are parked, of a stream whose group keeps order: runs are keys there.

    Attributes:
        guard: held while it takes in what was pulled; a caller may hold it for longer.
    """

    def __init__(
        self,
        put: Callable[[One], None],
        gone: Callable[[list[Delivery]], object],
        *,
        parked: ParkedKeys | None = None,
    ) -> None:
        self._put = put
        self._gone = gone
        self._parked = parked
        self.guard = threading.RLock()
        self._runs: dict[Hashable, Run] = {}

    def note(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Records, in order, the deliveries that were handed out; returns those that may go on."""
        with self.guard:
            refused: list[Delivery] = []
            if self._parked is not None:
                deliveries, refused = self._parked.sort(deliveries)
            for one in deliveries:
                self._runs.setdefault(self._name(one), {})[one] = None
            dispositions, implied = releases(refused)
            self._gone(implied)
            for disposition in dispositions:
                name = self._name(disposition.delivery)
                self._runs.setdefault(name, {})[disposition.delivery] = disposition
                self._advance(name)
            return deliveries

    def settle(self, delivery: Delivery, disposition: One) -> list[Delivery]:
        """Sends a disposition when its turn has come; returns what goes back with a retried one."""
        name = self._name(delivery)
        with self.guard:
            run = self._runs.get(name)
            if run is None or delivery not in run:  # lost or taken back: let the store judge
                self._put(disposition)
                return []
            if run[delivery] is not None:  # it goes back behind another one
                return []
            run[delivery] = disposition
            behind: list[Delivery] = []
            if isinstance(disposition, Disposition) and disposition.verdict is not Verdict.DEAD:
                behind = list(run)[list(run).index(delivery) + 1 :]
                self._park([delivery, *behind])
                given_back, implied = releases(behind, delivery)
                run.update((each.delivery, each) for each in given_back)
                self._drop(run, implied)
            self._advance(name)
            return behind

    def release(self, deliveries: Collection[Delivery]) -> list[Delivery]:
        """Gives deliveries back, uncounted, and with them what had ended before its turn.

        One that is not known here any more, or goes back already, does so with one before it that
        is retried. Returns what else goes back and is in somebody's hands.
        """
        others: list[Delivery] = []
        back = set(deliveries)
        with self.guard:
            for name in dict.fromkeys(map(self._name, deliveries)):
                run = self._runs.get(name, {})
                known = list(run)
                places = [place for place, one in enumerate(known)
                          if one in back and run[one] is None]  # fmt: skip
                if not places:
                    continue
                cut = known[places[0] :]
                others += [one for one in cut if run[one] is None and one not in back]
                dispositions, implied = releases(cut)
                self._park(cut)
                self._gone(implied)
                for one in cut:
                    del run[one]
                if not run:
                    del self._runs[name]
                for disposition in dispositions:
                    self._put(disposition)
        return others

    def forget(self, lost: Collection[Delivery]) -> None:
        """Forgets what the store has taken away."""
        with self.guard:
            names = {self._name(one) for one in lost}
            for one in lost:
                self._runs.get(self._name(one), {}).pop(one, None)
            for name in names & self._runs.keys():
                self._advance(name)

    def before_pull(self) -> None:
        """Opens the keys of which the store has answered all that was given back."""
        if self._parked is not None:
            with self.guard:
                self._parked.before_pull()

    # Inside: the lock is held.

    def _name(self, one: Delivery) -> Hashable:
        """The name of a delivery's run."""
        if self._parked is None:
            return one.subject, one.receipt
        return one.key if stands_by_key(one) else (one.slot, one.seq, one.receipt)

    def _park(self, deliveries: list[Delivery]) -> None:
        if self._parked is not None:
            self._parked.park(deliveries)

    def _drop(self, run: Run, deliveries: list[Delivery]) -> None:
        """Forgets what the store takes back by itself."""
        self._gone(deliveries)
        for one in deliveries:
            del run[one]

    def _advance(self, name: Hashable) -> None:
        """Sends what has come to its turn."""
        run = self._runs[name]
        for one in list(run):
            if (next_one := run[one]) is None:
                return
            del run[one]
            self._put(next_one)
        del self._runs[name]
