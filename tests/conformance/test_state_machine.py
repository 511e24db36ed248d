"""Whatever is done to them in whatever order, a store answers as the model does.

Both get the same operations at the same virtual time with the same receipts. An operation whose
reply was lost is done twice on the store, and must then agree with the model doing it once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
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
    rule,
    run_state_machine_as_test,
)

from qframe.clock import VirtualClock
from qframe.codec import batch_mark, subject_of
from qframe.message import Delivery
from qframe.outcomes import Settled, Verdict
from qframe.stores.base import Ask, Entry, Hold, Settlement
from qframe.stores.model.store import ModelStore
from qframe.stores.sql.store import SqlStore
from qframe.topic import Kind, Topic

KEYS = ("a", "b", "c", "d")
GROUPS = ("g", "h")
SLOTS = 2
KINDS = tuple(Kind)


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

    def both(self, do: Callable[[Any], Any], *, lost_reply: bool = False) -> Any:
        """Does the same to both and compares; a lost reply is done twice on the store."""
        expected = plain(do(self.model))
        answer = plain(do(self.store))
        assert answer == expected
        if lost_reply:
            do(self.store)
        return expected

    @initialize(limit=st.sampled_from([None, None, 12]))
    def declare(self, limit: int | None) -> None:
        self.topic = Topic(
            "t", self.kind, SLOTS, max_length=limit, retain="2s", dedupe_window="1s",
            gap_timeout="300ms",
        )  # fmt: skip
        self.both(lambda store: store.declare(self.topic))

    # What arrives

    @rule(
        items=st.lists(
            st.tuples(
                st.sampled_from([*KEYS, None]),
                st.integers(0, 3),
                st.sampled_from([None, None, None, 0, 50, 400]),
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
        for number, (key, body, delay, priority, naming, sequence) in enumerate(items):
            entry = self._entry(key, body, delay, priority, sequence)
            entry.id, entry.mark = f"{token}-{number}", batch_mark(token)
            if naming == "old" and self.ids:
                entry.id = entry.mark = self.ids[body % len(self.ids)]
            elif naming == "named":
                entry.id = entry.mark = f"n{next(self.numbers)}"
            self.ids.append(entry.id)
            entries.append(entry)
        # A slot takes its share of a batch whole, unless the limit cut it: then a repetition
        # may find room, as it should.
        lost = lost and self.topic.max_length is None
        self.both(lambda store: store.publish(self.topic, entries), lost_reply=lost)

    def _entry(
        self, key: str | None, body: int, delay: int | None, priority: int, sequence: int | None
    ) -> Entry:
        encoded = msgspec.json.encode({"n": body})
        numbered = self.kind is Kind.ORDERED and key is not None and delay is None
        return Entry(
            self.topic.slot_of(encoded if key is None else key.encode()),
            subject_of(key, encoded) if self.topic.has_subjects else None,
            "", "", key, {"h": str(body)} if body == 3 else None, encoded, delay_ms=delay,
            priority=priority if self.kind in (Kind.PRIORITY, Kind.ORDERED) else 0,
            within_ms=100 if self.kind is Kind.MERGE else 0,
            sequence=sequence if numbered else None,
        )  # fmt: skip

    @rule(ms=st.sampled_from([1, 10, 60, 150, 401, 1100]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    # Groups

    @rule(group=st.sampled_from(GROUPS), start=st.sampled_from(["earliest", "latest"]))
    def subscribe(self, group: str, start: str) -> None:
        if self.both(lambda store: store.subscribe(self.topic, group, start)):
            self.epochs[group] = dict.fromkeys(range(SLOTS), epoch(0))

    @rule(group=st.sampled_from(GROUPS), slots=st.sets(st.integers(0, SLOTS - 1), min_size=1),
          back=st.sampled_from([0, 0, 0, 1, 2]))  # fmt: skip
    def take(self, group: str, slots: set[int], back: int) -> None:
        if group not in self.epochs:
            return
        new = epoch(max(1, next(self.numbers) - 3 * back))
        wanted = dict.fromkeys(sorted(slots), new)
        for slot in self.both(lambda store: store.take(self.topic, group, wanted)):
            self.epochs[group][slot] = new

    @rule(group=st.sampled_from(GROUPS))
    def drop_group(self, group: str) -> None:
        self.both(lambda store: store.drop_group(self.topic, group))
        self.epochs.pop(group, None)

    @rule(group=st.sampled_from(GROUPS), slot=st.integers(0, SLOTS - 1), to=st.integers(0, 20))
    def seek(self, group: str, slot: int, to: int) -> None:
        if group in self.epochs and not self.topic.has_subjects:
            self.both(lambda store: store.seek(self.topic, group, {slot: to}))
            self.positions = {
                place: at for place, at in self.positions.items() if place[:2] != (group, slot)
            }

    # What is handed out and settled

    @rule(
        group=st.sampled_from(GROUPS),
        limit=st.sampled_from([1, 2, 3, 10]),
        run=st.sampled_from([1, 2, 32]),
        stale=st.sampled_from([False, False, False, True]),
        lost=st.booleans(),
    )
    def pull(self, group: str, limit: int, run: int, stale: bool, lost: bool) -> None:
        if group not in self.epochs:
            return
        receipt = f"r{next(self.numbers)}"
        owned = self.epochs[group]
        asks = [
            Ask(slot, epoch(99999) if stale else own, limit,
                self.positions.get((group, slot, own)))
            for slot, own in owned.items()
        ]  # fmt: skip

        def do(store: Any) -> Any:
            return store.pull(
                self.topic, group, asks, receipt=receipt, lease_ms=300, max_attempts=3, run=run
            )

        if lost:
            # The worker gives back what it never received, and asks a stream again by position.
            for store in (self.model, self.store):
                do(store)
            self.both(lambda store: store.recall(self.topic, group, asks, receipt))
            assert self.store.recall(self.topic, group, asks, receipt) == 0
            return
        pulled = self.both(do)
        for fields in pulled["deliveries"]:
            delivery = Delivery(**fields)
            self.given.append((group, delivery, owned[delivery.slot]))
            if delivery.subject is None:
                place = (group, delivery.slot, owned[delivery.slot])
                self.positions[place] = delivery.seq + 1

    @rule(
        chosen=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(Verdict)), min_size=1,
                        max_size=6),
        in_order=st.booleans(),
        delay=st.sampled_from([0, 50, 400]),
        wrong=st.sampled_from([None, None, None, "receipt", "epoch"]),
        lost=st.booleans(),
    )  # fmt: skip
    def settle(
        self,
        chosen: list[tuple[int, Verdict]],
        in_order: bool,
        delay: int,
        wrong: str | None,
        lost: bool,
    ) -> None:
        if not self.given:
            return
        group = self.given[0][0]
        mine = [each for each in self.given if each[0] == group]
        if group not in self.epochs:
            self.given = [each for each in self.given if each[0] != group]
            return
        settlements = []
        for place, (number, verdict) in enumerate(chosen):
            _, one, own = mine[place % len(mine) if in_order else number % len(mine)]
            settlements.append(
                Settlement(
                    one.slot, one.subject, one.seq, "wrong" if wrong == "receipt" else one.receipt,
                    one.attempt, epoch(99999) if wrong == "epoch" else own, verdict,
                    delay_ms=delay, error="boom" if verdict in ("retry", "dead") else None,
                    traceback="here" if verdict == "dead" else None,
                )
            )  # fmt: skip
        answers = self.both(lambda store: store.settle(self.topic, group, settlements))
        if wrong:
            assert set(answers) == {Settled.STALE}
        if lost:
            repeated = self.store.settle(self.topic, group, settlements)
            assert set(repeated) == {Settled.STALE} or Verdict.RELEASE in {
                one.verdict for one in settlements
            }
        done = {(one.slot, one.subject, one.seq, one.receipt) for one in settlements}
        self.given = [
            each for each in self.given
            if each[0] != group
            or (each[1].slot, each[1].subject, each[1].seq, each[1].receipt) not in done
            or place % 3 == 0
        ]  # fmt: skip

    @rule(number=st.integers(0, 30), lease=st.sampled_from([100, 500]))
    def renew(self, number: int, lease: int) -> None:
        if not self.given:
            return
        group, one, own = self.given[number % len(self.given)]
        if group in self.epochs:
            holds = [Hold(one.slot, own, one.subject, one.receipt)]
            self.both(lambda store: store.renew(self.topic, group, holds, lease))

    # By hand

    @rule(key=st.sampled_from(KEYS), what=st.sampled_from(["move", "change", "cancel"]),
          ms=st.sampled_from([-50, 0, 200]))  # fmt: skip
    def timer(self, key: str, what: str, ms: int) -> None:
        if not self.topic.has_subjects:
            return
        at_ms = self.clock.now_ms() + ms
        if what == "move":
            self.both(lambda store: store.move(self.topic, key, at_ms))
        elif what == "change":
            self.both(lambda store: store.change(self.topic, key, b'"new"', {"x": "y"}))
        else:
            self.both(lambda store: store.cancel(self.topic, key))
        self.both(lambda store: store.timer(self.topic, key))

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
