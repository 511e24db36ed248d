"""One topic, on the model and on another store, to which the same is done.

Both get the same operations at the same virtual time with the same receipts; the counts are
compared after each. An operation whose reply was lost is repeated on the store alone, which must
then stand where the model stands that did it once. Both grow in step: whoever sees to that halts
between two calls, while others go on, and is abandoned, or only thought dead. Beside the two, each
key's messages are counted: whatever is done, a group that keeps order is given them in theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any, ClassVar

import lives
import msgspec
import stepping
from bench import epoch, timers_in_pages
from operations import GROUPS, LEASE_MS, SLOTS, Op
from publish_order import Place, Places, PublishOrder
from stepping import Pair
from timer_acts import cancel, edit
from topic_kinds import of_kind
from whereabouts import whereabouts

from qframe.clock import VirtualClock
from qframe.codec import batch_mark, subject_of
from qframe.message import Delivery
from qframe.outcomes import Outcome, Settled, Verdict
from qframe.stores.base import Store
from qframe.stores.model.store import ModelStore
from qframe.stores.records import ChosenDead, TimerSpan
from qframe.stores.types import (
    NO_EPOCH,
    Entry,
    LeaseRef,
    PullRequest,
    PullTerms,
    Settlement,
    SlotsClosed,
)
from qframe.topic import Kind, Topic

VERIFY_EVERY = 8
MOST_SLOTS = 4
WAIT_FOR_NOTHING = (
    "publish", "work", "settle", "renew", "look", "grow",
)  # fmt: skip
"""All else waits for a slot that is closed until it is split."""
REFUSED = ("GrowthTaken", "SlotsClosed")
NOT_MINE = epoch(99999)


class Machine(lives.Machine):
    """One topic of one kind, on the model and on another store.

    The other store stays open for all lives, each of which has a topic of its own: to open it anew
    would cost as much as ten steps.
    """

    kind = Kind.STREAM
    store: ClassVar[Store]
    clock: ClassVar[VirtualClock]
    births: ClassVar[Iterator[int]]
    reached: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.model = ModelStore(clock=self.clock)
        self.start_ms = self.clock.now_ms()
        self.numbers = count(1)
        self.steps = 0
        self.is_changed = self.is_audited = False
        self.ids: list[str] = []
        self.in_hand: list[tuple[str, Delivery, str]] = []
        self.epochs: dict[str, dict[int, str]] = {}
        self.positions: dict[tuple[str, int, str], int] = {}
        self.places: Places = {}
        self.stored: set[str] = set()
        self.twice: set[str] = set()
        self.orders: dict[str, PublishOrder] = {}
        self.growing: Pair | None = None
        self.thought_dead: Pair | None = None

    def teardown(self) -> None:
        for each in (self.growing, self.thought_dead):
            if each is not None:
                each.abandon()
        self.structure_is_sound()

    def both(self, do: Callable[[Any], Any]) -> Any:
        """Does the same to both and compares."""
        self.is_changed = True
        expected = plain(do(self.model))
        assert plain(do(self.store)) == expected
        return expected

    def begin(self, limited: bool, subscribed: int, max_parked: int, grows: bool) -> None:
        self.grows = grows
        # Seven subjects at most, but any number of messages where they do not replace each other.
        limit = 16 if self.kind in (Kind.STREAM, Kind.ORDERED) else 5
        self.topic = Topic(
            f"t{next(self.births)}", self.kind, SLOTS, max_length=limit if limited else None,
            dedupe_window="1s", **of_kind(self.kind, retain="2s", gap_timeout="300ms"),
            subject="body" if self.kind in (Kind.DELAY, Kind.PRIORITY) else None,
        )  # fmt: skip
        self.both(lambda store: store.declare(self.topic))
        for group in GROUPS[:subscribed]:
            self.subscribe(group, "earliest", owned=True, max_parked=max_parked)
        self.counts_agree()

    def step(self, op: Op) -> None:
        """Does one operation, if there is what it needs."""
        name, options = op
        if options.get("group", "g") in self.epochs or name in ("publish", "subscribe", "grow"):
            self.reached[name] += 1
            if self.is_closed and name not in WAIT_FOR_NOTHING:
                self._split()
            getattr(self, name)(**options)
        self.counts_agree()

    def counts_agree(self) -> None:
        """Compares the counts, and audits now and then; half of the steps have changed nothing."""
        if self.is_changed:
            self.both(lambda store: store.stats(self.topic))
            self.is_changed, self.is_audited = False, False
        self.steps += 1
        if self.steps % VERIFY_EVERY == 0 and not self.is_audited:
            self.structure_is_sound()
            self.is_audited = True

    def structure_is_sound(self) -> None:
        """Audits both, which takes as long as ten steps."""
        assert self.model.verify(self.topic) == []
        assert self.store.verify(self.topic) == []

    # What arrives

    def publish(self, items: list[tuple[Any, ...]], lost: bool) -> None:
        token = f"{next(self.numbers):020d}"
        entries, placed = [], []
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
                entry.at_ms = self.start_ms + 50 * ms
            elif self.kind is Kind.ORDERED and key is not None:
                entry.sequence = sequence
            self.ids.append(entry.id)
            entries.append(entry)
            if timed is None or self.kind is Kind.ORDERED:
                placed.append(entry)
        outcomes = self.both(lambda store: outcomes_of(store, self.topic, entries))
        self.reached.update(outcome or "closed" for outcome in outcomes)
        if lost and not {Outcome.FULL, None} & set(outcomes):
            assert set(self.store.publish(self.topic, entries)) == {Outcome.DUPLICATE}
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome == Outcome.STORED:
                self._give_place(entry, has_one=entry in placed)

    def _give_place(self, entry: Entry, *, has_one: bool) -> None:
        """Notes where a message stands in its key; two of one id have no place."""
        if entry.id in self.stored:
            for order in self.orders.values():
                order.free([entry.id])
            self.twice.add(entry.id)
        elif has_one and entry.key is not None and entry.sequence is None:
            self.places[entry.id] = Place(entry.key, next(self.numbers))
        self.stored.add(entry.id)

    def _entry(self, key: str | None, body: int, priority: int) -> Entry:
        encoded = msgspec.json.encode({"n": body})
        if key is None and self.kind is Kind.ORDERED:
            key = "none"
        return Entry(
            self.topic.slot_of(encoded if key is None else key.encode()),
            subject_of(self.topic, key, encoded, ""),
            "", "", key, {"h": str(body)} if body == 3 else None, encoded,
            priority=priority if self.kind in (Kind.PRIORITY, Kind.ORDERED) else 0,
            within_ms=100 if self.kind is Kind.MERGE else 0,
        )  # fmt: skip

    # Groups

    def subscribe(
        self, group: str, start: str, owned: bool, expires: int | None = None, beside: str = "",
        max_parked: int = 0,
    ) -> None:  # fmt: skip
        most = max_parked if self.kind is Kind.STREAM else 0
        others = [beside] if beside not in ("", group) else []
        new = [each for each in (group, *others) if each not in self.epochs]
        self.both(
            lambda store: store.subscribe(
                self.topic, group, start, expires, beside=others, max_parked=most
            )
        )
        keeps = most > 0 or self.kind is Kind.ORDERED
        for each in (group, *others):
            if each in new:
                self.orders[each] = PublishOrder(self.places, keeps)
                self.orders[each].free(self.twice)
            self.orders[each].keep(keeps)
        for each in new:
            self.epochs[each] = dict.fromkeys(self.topic.all_slots, NO_EPOCH)
            if owned:
                self.take(each, set(range(SLOTS)), 0)

    def take(self, group: str, slots: set[int], back: int) -> None:
        """Takes slots; where the topic has more than at first, each stands for several."""
        chosen = [slot for slot in self.topic.all_slots if slot % SLOTS in slots]
        self._take(group, chosen, epoch(max(1, next(self.numbers) - back)))
        self.both(lambda store: store.epochs(self.topic, group))

    def _take(self, group: str, slots: Iterable[int], new: str) -> None:
        wanted = dict.fromkeys(slots, new)
        taken = self.both(lambda store: store.take(self.topic, group, wanted))
        self.orders[group].lost([slot for slot in taken if self.epochs[group][slot] != new])
        self.epochs[group] |= dict.fromkeys(taken, new)

    def drop_group(self, group: str) -> None:
        self.both(lambda store: store.drop_group(self.topic, group))
        self.both(lambda store: store.groups(self.topic))
        self._forget_group(group)

    def _forget_group(self, group: str) -> None:
        del self.epochs[group], self.orders[group]
        self.in_hand = [each for each in self.in_hand if each[0] != group]
        self._forget_positions(group, self.topic.all_slots)

    def seek(self, group: str, slot: int, to: int) -> None:
        slot = self.topic.all_slots[slot]
        self.both(lambda store: store.seek(self.topic, group, {slot: to}))
        self._forget_positions(group, [slot])
        self.orders[group].begin_anew()

    def _forget_positions(self, group: str, slots: Iterable[int]) -> None:
        for place in list(self.positions):
            if place[0] == group and place[1] in slots:
                del self.positions[place]

    # More slots

    @property
    def is_closed(self) -> bool:
        """Whether a slot is closed."""
        return any(slot.closed for slot in self.model._state(self.topic).in_use.values())

    def grow(self, steps: int, how: str) -> None:
        """Whoever sees to the growth goes on; or dies, or is thought dead, and another does."""
        if not self.grows:
            return
        self.is_changed = True
        if self.growing is None:
            self._see_to_growth()
        elif how == "another" and self.thought_dead is None:
            self.thought_dead, self.growing = self.growing, None
            self.clock.advance(stepping.LEASE_MS)
            self._see_to_growth()
        for _ in range(steps):
            self._go_on()
            if self.thought_dead is not None:
                self.thought_dead.step()
                if self.thought_dead.is_over:
                    self.reached["taken over"] += 1
                    assert self.thought_dead.end() in REFUSED
                    self.thought_dead = None
        if how == "abandon" and self.growing is not None:
            self.reached["abandoned"] += 1
            self.growing.abandon()
            self.growing = None

    def _see_to_growth(self) -> None:
        """Somebody begins to see to it, unless it is done, or is another's."""
        if self.topic.slots < MOST_SLOTS or self.topic.growth.target:
            two = self.model, self.store
            found = Pair(two, self.topic, 2 * self.topic.slots, self.clock)
            found.step()
            if found.step() not in REFUSED:
                self.growing = found
                self._hear()

    def _go_on(self) -> None:
        """One step; what others see of it, they see."""
        if self.growing is not None:
            did = self.growing.stands
            self.growing.step()
            if did in ("grow", "close_slot"):
                self._hear()
            if self.growing.is_over:
                end = self.growing.end()
                assert end == "done" or end in REFUSED, end
                self.reached["grown"] += end == "done"
                self.growing = None

    def _hear(self) -> None:
        """Looks how far the topic is grown; owners of a slot that is split take the two."""
        before = self.topic
        [self.topic] = self.both(lambda store: store.latest([before]))
        if self.is_closed:
            for order in self.orders.values():
                order.lost(before.all_slots[:1])
        for slot in set(before.all_slots) - set(self.topic.all_slots):
            halves = before.split_of(slot)
            for group, epochs in self.epochs.items():
                owner = epochs.pop(slot)
                epochs |= dict.fromkeys(halves, NO_EPOCH)
                if owner != NO_EPOCH:
                    self._take(group, halves, epoch(next(self.numbers)))

    def _split(self) -> None:
        """Somebody goes on until no slot is closed."""
        self.is_changed = True
        while self.is_closed:
            if self.growing is None:
                self.clock.advance(stepping.LEASE_MS)
                self._see_to_growth()
            self._go_on()

    # What is handed out and settled

    def work(
        self,
        group: str,
        ms: int,
        limit: int,
        run: int,
        attempts: int,
        reply: str,
        verdicts: list[Verdict],
        backwards: bool,
    ) -> None:
        """After some time, a pull; what it hands out is settled at once, or stays in hand."""
        self.clock.advance(ms)
        owned = dict(self.epochs[group])
        asks = [
            PullRequest(slot, NOT_MINE if reply == "fenced" else own, limit,
                self.positions.get((group, slot, own)))
            for slot, own in owned.items()
        ]  # fmt: skip
        if reply == "lost":
            # The worker gives back what it never received, and asks a stream again by position.
            _, receipt = self._pull(group, asks, run, attempts)
            self.both(lambda store: store.revoke(self.topic, group, asks, receipt))
            assert self.store.revoke(self.topic, group, asks, receipt).count == 0
            self.orders[group].begin_anew()
        pulled, _ = self._pull(group, asks, run, attempts)
        got = [
            (group, one, owned[one.slot])
            for one in [Delivery(**each) for each in pulled["deliveries"]]
        ]
        for _, one, own in got:
            wrong = self.orders[group].handed_out(one, lambda: self._dead(group))
            assert not wrong, f"{one} beside {wrong}"
            if one.subject is None:
                self.positions[group, one.slot, own] = one.seq + 1
        for slot, stop in pulled["stops"].items():
            self.positions[group, slot, owned[slot]] = stop
            self.reached["parked"] += 1
        self.reached["full slot"] += len(pulled["full"])
        chosen = [(*each, verdict) for each, verdict in zip(got, verdicts, strict=False)]
        self._settle(chosen[::-1] if backwards else chosen, 150)
        self.in_hand = [*got[len(verdicts) :], *self.in_hand, *got[: len(verdicts)]][:40]

    def _pull(
        self, group: str, asks: list[PullRequest], run: int, attempts: int
    ) -> tuple[Any, str]:
        receipt = f"r{next(self.numbers)}"
        pulled = self.both(
            lambda store: store.pull(
                self.topic,
                group,
                asks,
                PullTerms(receipt, LEASE_MS, attempts, run=run),
            )
        )
        self.reached["delivery"] += len(pulled["deliveries"])
        self.reached["again"] += sum(one["attempt"] > 1 for one in pulled["deliveries"])
        for what in ("lost", "dead", "gaps"):
            self.reached[what] += pulled[what]
        return pulled, receipt

    def settle(self, chosen: list[tuple[int, Verdict]], delay: int, wrong: str | None) -> None:
        """Settles what is in hand in any order, some of it for the second time."""
        if self.in_hand:
            picked = [self.in_hand[number % len(self.in_hand)] for number, _ in chosen]
            self._settle(
                [
                    (*each, verdict)
                    for each, (_, verdict) in zip(picked, chosen, strict=True)
                    if each[0] == picked[0][0]
                ],
                delay,
                wrong,
            )

    def _settle(
        self,
        chosen: list[tuple[str, Delivery, str, Verdict]],
        delay: int,
        wrong: str | None = None,
    ) -> None:
        if not chosen:
            return
        group = chosen[0][0]
        settlements = [
            Settlement(
                one.slot, one.subject, one.seq, "wrong" if wrong == "receipt" else one.receipt,
                one.attempt, NOT_MINE if wrong == "epoch" else own, verdict,
                delay_ms=delay, at_ms=self.clock.now_ms() + 150 if delay == 1 else None,
                error="boom" if verdict in ("retry", "dead") else None,
                traceback="here" if verdict == "dead" else None,
            )
            for _, one, own, verdict in chosen
        ]  # fmt: skip
        answers = self.both(lambda store: store.settle(self.topic, group, settlements))
        self.reached.update(
            f"{one.verdict} {answer}" for one, answer in zip(settlements, answers, strict=True)
        )
        if wrong:
            assert set(answers) == {Settled.STALE}
        for (_, one, _, verdict), answer in zip(chosen, answers, strict=True):
            if answer == Settled.SETTLED:
                self._note_settled(self.orders[group], one.id, verdict)
        # As if the answer was lost: what was settled is settled again, and nothing changes.
        done = [
            one for one, answer in zip(settlements, answers, strict=True) if answer == "settled"
        ]
        again = self.store.settle(self.topic, group, done)
        assert again == [Settled.STALE] * len(done)

    def _note_settled(self, order: PublishOrder, its: str, verdict: Verdict) -> None:
        if verdict == Verdict.ACK:
            order.ended(its)
        elif verdict == Verdict.DEAD:
            order.free([its])
        else:
            order.came_back(its)

    def _dead(self, group: str) -> list[str]:
        return [one.id for one in self.model.dead(self.topic, group, ChosenDead(limit=1000))]

    def renew(self, numbers: list[int], lease: int) -> None:
        if self.in_hand:
            group = self.in_hand[0][0]
            mine = [each for each in self.in_hand if each[0] == group]
            chosen = [mine[number % len(mine)] for number in numbers]
            holds = [LeaseRef(one.slot, own, one.subject, one.receipt) for _, one, own in chosen]
            renewed = self.both(lambda store: store.renew(self.topic, group, holds, lease))
            self.reached["renewed"] += len(holds) - len(renewed["gone"])

    # By hand

    def timer(self, key: str, what: str, ms: int) -> None:
        at_ms = self.clock.now_ms() + ms
        if what == "move":
            answer = self.both(lambda store: edit(store, self.topic, key, due_ms=at_ms))
        elif what == "change":
            due_ms = at_ms if ms % 2 else None
            answer = self.both(
                lambda store: edit(
                    store, self.topic, key, due_ms=due_ms, body=b'"new"', headers={"x": "y"}
                )
            )
        else:
            answer = self.both(lambda store: cancel(store, self.topic, key))
            for order in self.orders.values():
                order.free_key(key)
        self.reached[f"{what} done" if answer == "done" else answer] += 1
        self.both(lambda store: store.timer(self.topic, key))
        for group in self.epochs:
            self._records(group)

    def dead_letters(self, group: str, what: str, number: int | None) -> None:
        dead = self.both(lambda store: store.dead(self.topic, group))
        ids = None if number is None else [one["id"] for one in dead][number : number + 1]
        self.orders[group].free(self._dead(group))
        done = self.both(lambda store: getattr(store, what)(self.topic, group, ChosenDead(ids, 3)))
        self.reached[f"{what} of one"] += done

    def sweep(self) -> None:
        # Which rows go first is the store's own affair, that all go is not.
        for store in (self.model, self.store):
            while removed := store.sweep(self.topic, 500):
                self.reached["swept"] += removed
        left = self.both(lambda store: store.groups(self.topic))
        for group in set(self.epochs) - set(left):
            self.reached["expired"] += 1
            self._forget_group(group)

    def look(self, group: str, number: int) -> None:
        self._records(group)
        self.both(lambda store: by_place(timers_in_pages(store, self.topic, TimerSpan(limit=100))))
        paged = timers_in_pages(self.store, self.topic, TimerSpan(limit=2))
        assert paged == self.store.timers(self.topic)
        self.both(lambda store: store.offsets_at(self.topic, self.clock.now_ms() - 100))
        if self.ids:
            chosen = self.ids[-number % len(self.ids)]
            self.both(lambda store: by_place(whereabouts(store, self.topic, chosen)))

    def _records(self, group: str) -> None:
        for state in ("doing", "todo", "waiting", "held", "dead"):
            self.both(
                lambda store, state=state: by_place(
                    store.peek(self.topic, group, states=(state,), limit=1000)
                )
            )


def outcomes_of(store: Store, topic: Topic, entries: list[Entry]) -> list[Outcome | None]:
    """What becomes of each; None where its slot is closed."""
    try:
        return [*store.publish(topic, entries)]
    except SlotsClosed as error:
        return error.outcomes or []


def plain(answer: Any) -> Any:
    """An answer as builtins, so that it can be compared; what is read ahead is a store's own."""
    if isinstance(answer, msgspec.Struct):
        names = [name for name in answer.__struct_fields__ if name != "ahead_bytes"]
        return {name: plain(getattr(answer, name)) for name in names}
    if isinstance(answer, list):
        return [plain(each) for each in answer]
    return answer


def by_place(records: list[Any]) -> list[Any]:
    """Records in one order, whatever order the store has those of a moment in."""
    alike = [msgspec.structs.replace(each, by_subject=False) for each in records]
    return sorted(plain(alike), key=str)


def machine_of(
    kind: Kind, store: Store, clock: VirtualClock, reached: Counter[str]
) -> type[Machine]:
    """The machine for a kind, which counts what it reaches."""
    fields = {
        "kind": kind, "store": store, "clock": clock, "births": count(),
        "reached": reached,
    }  # fmt: skip
    return type(f"{kind.title()}Machine", (Machine,), fields)
