"""Whatever is done to them in whatever order, a store answers as the model does.

Both get the same operations at the same virtual time with the same receipts. An operation whose
reply was lost is done twice on the store, and must then agree with the model doing it once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench import epoch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from qframe.clock import VirtualClock
from qframe.codec import batch_mark, subject_of
from qframe.message import Delivery
from qframe.outcomes import Outcome, Settled, Verdict
from qframe.stores.base import NO_EPOCH, Ask, Entry, Hold, Settlement
from qframe.stores.model.store import ModelStore
from qframe.stores.sql.store import SqlStore
from qframe.topic import Kind, Topic

KEYS = ("a", "b", "c")
GROUPS = ("g", "h")
SLOTS = 2
KINDS = tuple(Kind)
LEASE_MS = 300
NOT_MINE = epoch(99999)
START_MS = VirtualClock().now_ms()


class Machine(RuleBasedStateMachine):
    """One topic of one kind, on the model and on another store."""

    kind = Kind.STREAM

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = VirtualClock()
        path = Path(self.folder.name) / "store.db"
        self.model = ModelStore(clock=self.clock)
        self.store = SqlStore(f"sqlite:///{path}?synchronous=normal", clock=self.clock)
        self.numbers = count(1)
        self.ids: list[str] = []
        self.given: list[tuple[str, Delivery, str]] = []
        self.epochs: dict[str, dict[int, str]] = {}
        self.positions: dict[tuple[str, int, str], int] = {}

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def both(self, do: Callable[[Any], Any]) -> Any:
        """Does the same to both and compares."""
        expected = plain(do(self.model))
        assert plain(do(self.store)) == expected
        return expected

    @initialize(limit=st.sampled_from([None, None, 12]), subscribed=st.sampled_from([0, 1, 1, 2]))
    def declare(self, limit: int | None, subscribed: int) -> None:
        self.topic = Topic(
            "t", self.kind, SLOTS, max_length=limit, retain="2s", dedupe_window="1s",
            gap_timeout="300ms",
        )  # fmt: skip
        self.both(lambda store: store.declare(self.topic))
        for group in GROUPS[:subscribed]:
            self.subscribe(group, "earliest", owned=True)

    # What arrives

    @rule(
        items=st.lists(
            st.tuples(
                st.sampled_from([*KEYS, None]),
                st.integers(0, 3),
                st.sampled_from([None, None, None, "delay", "at"]),
                st.sampled_from([0, 50, 400]),
                st.integers(-1, 2),
                st.sampled_from([None, None, "old", "named"]),
                st.sampled_from([None, None, 1, 2, 3, 5]),
            ),
            min_size=1,
            max_size=5,
        ),
        lost=st.booleans(),
    )
    def publish(self, items: list[tuple[Any, ...]], lost: bool) -> None:
        token = f"{next(self.numbers):020d}"
        entries = []
        for number, (key, body, timed, ms, priority, naming, sequence) in enumerate(items):
            entry = self._entry(key, body, priority)
            entry.id, entry.mark = f"{token}-{number}", batch_mark(token)
            if naming == "old" and self.ids:
                entry.id = entry.mark = self.ids[body % len(self.ids)]
            elif naming == "named":
                entry.id = entry.mark = f"n{next(self.numbers)}"
            if timed == "delay":
                entry.delay_ms = ms
            elif timed == "at":
                # One of few moments, so that equal ids and moments meet.
                entry.at_ms = START_MS + 1000 * (ms // 50)
            elif self.kind is Kind.ORDERED and key is not None:
                entry.sequence = sequence
            self.ids.append(entry.id)
            entries.append(entry)
        outcomes = self.both(lambda store: store.publish(self.topic, entries))
        if lost and Outcome.FULL not in outcomes:
            assert set(self.store.publish(self.topic, entries)) == {Outcome.DUPLICATE}

    def _entry(self, key: str | None, body: int, priority: int) -> Entry:
        encoded = msgspec.json.encode({"n": body})
        return Entry(
            self.topic.slot_of(encoded if key is None else key.encode()),
            subject_of(key, encoded) if self.topic.has_subjects else None,
            "", "", key, {"h": str(body)} if body == 3 else None, encoded,
            priority=priority if self.kind in (Kind.PRIORITY, Kind.ORDERED) else 0,
            within_ms=100 if self.kind is Kind.MERGE else 0,
        )  # fmt: skip

    @rule(ms=st.sampled_from([1, 50, 150, LEASE_MS, 401, 1100]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    # Groups

    @rule(
        group=st.sampled_from(GROUPS),
        start=st.sampled_from(["earliest", "latest"]),
        owned=st.sampled_from([True, True, True, False]),
    )
    def subscribe(self, group: str, start: str, owned: bool) -> None:
        if self.both(lambda store: store.subscribe(self.topic, group, start)):
            self.epochs[group] = dict.fromkeys(range(SLOTS), NO_EPOCH)
            if owned:
                self._take(group, set(range(SLOTS)), epoch(next(self.numbers)))

    @precondition(lambda self: self.epochs)
    @rule(group=st.sampled_from(GROUPS), slots=st.sets(st.integers(0, SLOTS - 1), min_size=1),
          back=st.sampled_from([0, 0, 0, 1, 2]))  # fmt: skip
    def take(self, group: str, slots: set[int], back: int) -> None:
        if group in self.epochs:
            self._take(group, slots, epoch(max(1, next(self.numbers) - 3 * back)))

    def _take(self, group: str, slots: set[int], new: str) -> None:
        wanted = dict.fromkeys(sorted(slots), new)
        for slot in self.both(lambda store: store.take(self.topic, group, wanted)):
            self.epochs[group][slot] = new
        self.both(lambda store: store.epochs(self.topic, group))

    @precondition(lambda self: self.epochs)
    @rule(group=st.sampled_from(GROUPS), really=st.sampled_from([True, False, False]))
    def drop_group(self, group: str, really: bool) -> None:
        if really:
            self.both(lambda store: store.drop_group(self.topic, group))
            self.epochs.pop(group, None)
            self.given = [each for each in self.given if each[0] != group]
            self._forget_positions(group, range(SLOTS))

    @precondition(lambda self: self.epochs and self.kind is Kind.STREAM)
    @rule(group=st.sampled_from(GROUPS), slot=st.integers(0, SLOTS - 1), to=st.integers(0, 12))
    def seek(self, group: str, slot: int, to: int) -> None:
        if group in self.epochs:
            self.both(lambda store: store.seek(self.topic, group, {slot: to}))
            self._forget_positions(group, [slot])

    def _forget_positions(self, group: str, slots: Iterable[int]) -> None:
        for place in list(self.positions):
            if place[0] == group and place[1] in slots:
                del self.positions[place]

    # What is handed out and settled

    @precondition(lambda self: self.epochs)
    @rule(
        group=st.sampled_from(GROUPS),
        limit=st.sampled_from([1, 2, 3, 10]),
        run=st.sampled_from([1, 2, 32]),
        stale=st.sampled_from([False] * 7 + [True]),
        lost=st.sampled_from([False, False, True]),
    )
    def pull(self, group: str, limit: int, run: int, stale: bool, lost: bool) -> None:
        if group not in self.epochs:
            return
        owned = self.epochs[group]
        asks = [
            Ask(slot, NOT_MINE if stale else own, limit, self.positions.get((group, slot, own)))
            for slot, own in owned.items()
        ]
        if lost:
            # The worker gives back what it never received, and asks a stream again by position.
            _, receipt = self._pull(group, asks, run)
            self.both(lambda store: store.recall(self.topic, group, asks, receipt))
            assert self.store.recall(self.topic, group, asks, receipt) == 0
        pulled, _ = self._pull(group, asks, run)
        for fields in pulled["deliveries"]:
            delivery = Delivery(**fields)
            self.given.append((group, delivery, owned[delivery.slot]))
            if delivery.subject is None:
                place = (group, delivery.slot, owned[delivery.slot])
                self.positions[place] = delivery.seq + 1

    def _pull(self, group: str, asks: list[Ask], run: int) -> tuple[Any, str]:
        receipt = f"r{next(self.numbers)}"
        pulled = self.both(
            lambda store: store.pull(
                self.topic, group, asks, receipt=receipt, lease_ms=LEASE_MS, max_attempts=3, run=run
            )
        )
        return pulled, receipt

    @precondition(lambda self: self.given)
    @rule(
        chosen=st.lists(
            st.tuples(st.integers(0, 30), st.sampled_from([*Verdict, Verdict.ACK, Verdict.ACK])),
            min_size=1,
            max_size=6,
        ),
        in_order=st.booleans(),
        delay=st.sampled_from([0, 50, 400]),
        at=st.booleans(),
        wrong=st.sampled_from([None, None, None, None, "receipt", "epoch"]),
        forgets=st.sampled_from([True, True, False]),
    )
    def settle(
        self,
        chosen: list[tuple[int, Verdict]],
        in_order: bool,
        delay: int,
        at: bool,
        wrong: str | None,
        forgets: bool,
    ) -> None:
        group = self.given[0][0]
        mine = [each for each in self.given if each[0] == group]
        settlements = []
        for place, (number, verdict) in enumerate(chosen):
            _, one, own = mine[place % len(mine) if in_order else number % len(mine)]
            settlements.append(
                Settlement(
                    one.slot, one.subject, one.seq, "wrong" if wrong == "receipt" else one.receipt,
                    one.attempt, NOT_MINE if wrong == "epoch" else own, verdict,
                    delay_ms=delay, at_ms=self.clock.now_ms() + 2 * delay if at else None,
                    error="boom" if verdict in ("retry", "dead") else None,
                    traceback="here" if verdict == "dead" else None,
                )
            )  # fmt: skip
        answers = self.both(lambda store: store.settle(self.topic, group, settlements))
        if wrong:
            assert set(answers) == {Settled.STALE}
        # If the answer was lost, what was settled is settled again: stale, and nothing changes.
        done = [
            one for one, answer in zip(settlements, answers, strict=True) if answer == "settled"
        ]
        again = self.store.settle(self.topic, group, done)
        assert again == [Settled.STALE] * len(done)
        # Some stay in hand, to be settled once more much later.
        if forgets:
            over = {(one.slot, one.subject, one.seq, one.receipt) for one in settlements}
            self.given = [
                each for each in self.given
                if each[0] != group
                or (each[1].slot, each[1].subject, each[1].seq, each[1].receipt) not in over
            ]  # fmt: skip
        # The next time another group may have its turn.
        self.given = self.given[1:] + self.given[:1]

    @precondition(lambda self: self.given)
    @rule(numbers=st.lists(st.integers(0, 30), min_size=1, max_size=4),
          lease=st.sampled_from([100, 500]))  # fmt: skip
    def renew(self, numbers: list[int], lease: int) -> None:
        group = self.given[0][0]
        mine = [each for each in self.given if each[0] == group]
        chosen = [mine[number % len(mine)] for number in numbers]
        holds = [Hold(one.slot, own, one.subject, one.receipt) for _, one, own in chosen]
        self.both(lambda store: store.renew(self.topic, group, holds, lease))

    # By hand

    @precondition(lambda self: self.kind is not Kind.STREAM)
    @rule(key=st.sampled_from(KEYS), what=st.sampled_from(["move", "change", "cancel"]),
          ms=st.sampled_from([-50, 0, 200]))  # fmt: skip
    def timer(self, key: str, what: str, ms: int) -> None:
        at_ms = self.clock.now_ms() + ms
        if what == "move":
            self.both(lambda store: store.move(self.topic, key, at_ms))
        elif what == "change":
            self.both(lambda store: store.change(self.topic, key, b'"new"', {"x": "y"}))
        else:
            self.both(lambda store: store.cancel(self.topic, key))
        self.both(lambda store: store.timer(self.topic, key))

    @precondition(lambda self: self.epochs)
    @rule(group=st.sampled_from(GROUPS), drop=st.booleans(), number=st.integers(0, 20),
          everything=st.booleans())  # fmt: skip
    def dead(self, group: str, drop: bool, number: int, everything: bool) -> None:
        if group not in self.epochs:
            return
        ids = None if everything or not self.ids else [self.ids[number % len(self.ids)]]
        verb = "drop_dead" if drop else "retry_dead"
        self.both(lambda store: getattr(store, verb)(self.topic, group, ids, 3))

    @rule()
    def sweep(self) -> None:
        # Which rows go first is the store's own affair, that all go is not.
        for store in (self.model, self.store):
            while store.sweep(self.topic, 500):
                pass

    # What is seen

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "topic"):
            return
        self.both(lambda store: store.stats(self.topic))
        assert self.store.verify(self.topic) == []
        assert self.model.verify(self.topic) == []

    @precondition(lambda self: self.epochs)
    @rule(group=st.sampled_from(GROUPS), number=st.integers(0, 30))
    def look(self, group: str, number: int) -> None:
        if group not in self.epochs:
            return
        states = ("doing", "todo", "waiting", "held", "dead")
        for state in states:
            self.both(
                lambda store, state=state: by_place(
                    store.peek(self.topic, group, states=(state,), limit=1000)
                )
            )
        self.both(lambda store: store.dead(self.topic, group))
        self.both(lambda store: store.timers(self.topic))
        self.both(lambda store: store.offsets_at(self.topic, self.clock.now_ms() - 100))
        if self.ids:
            chosen = self.ids[number % len(self.ids)]
            self.both(lambda store: by_place(store.explain(self.topic, chosen)))


def plain(answer: Any) -> Any:
    """An answer as builtins, so that it can be compared."""
    return msgspec.to_builtins(answer, builtin_types=(bytes,))


def by_place(records: list[Any]) -> list[Any]:
    """Records in one order, and without what each store may name for itself."""
    return sorted(plain(records), key=str)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_answers_as_the_model_does(kind: Kind) -> None:
    machine = type(f"{kind.title()}Machine", (Machine,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )


EXAMPLES = 60
