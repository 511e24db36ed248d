"""What has truly happened in a run, and the promises that it is held against."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import filterfalse
from typing import TYPE_CHECKING, Any

from qframe.message import Delivery, Message
from qframe.outcomes import Outcome, Settled, Verdict
from simulation.plan import Plan

if TYPE_CHECKING:
    from simulation.worker import SimulatedWorker


Name = tuple[str, str]
"""A group, and the id of a message."""


class Broken(AssertionError):
    """Raised when a promise is broken."""


class Call:
    """One call of a handler with one message.

    Attributes:
        is_fresh: whether nothing stands between its worker's last look at what it owns and it.
        is_in_force: whether no seek has come between its message's handing out and it.
        has_succeeded: whether its handler has returned, or said that it is done.
    """

    def __init__(self, worker: SimulatedWorker, group: str, message: Any, unit: object) -> None:
        self.worker = worker
        self.group = group
        self.message = message
        self.unit = unit
        self.is_fresh = worker.plan.is_direct
        self.is_in_force = True
        self.has_succeeded = False

    @property
    def is_certain(self) -> bool:
        """Whether its worker is sure that nobody else may handle this message now."""
        worker = self.worker
        consumer = worker.consumers.get(self.group)
        return (
            not worker.process.dead
            and not self.message.cancelled
            and consumer is not None
            and consumer.slots.certain_until_s > worker.process.monotonic_s()
            and self.message.delivery in consumer.in_flight
        )

    def __str__(self) -> str:
        it = self.message.delivery
        return f"{it.id} (attempt {it.attempt}) in {self.worker.process.name}"


class Ledger:
    """Hears of each step, and ends the run where a promise is broken.

    Args:
        plan: the run's.
        log: the history.
        fail: ends the run.
        is_dead: whether a group's message was given up, or is no more, so that others need not
            wait for it.
        is_in_force: whether the store takes a delivery of a group for handed out still.
    """

    def __init__(
        self, plan: Plan, log: Callable[..., None], fail: Callable[[Broken], None],
        *, is_dead: Callable[[str, str], bool], is_in_force: Callable[[str, Delivery], bool],
    ) -> None:  # fmt: skip
        self.plan = plan
        self.log = log
        self._fail = fail
        self._is_dead = is_dead
        self._is_in_force = is_in_force
        self.acts = {f"m{each.number}": each.acts for each in plan.messages}
        self.key_of: dict[str, str] = {}
        self.slot_of: dict[str, int] = {}
        self.order: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.delayed: set[str] = set()
        self.due_ms: dict[tuple[str, str], int] = {}
        self.replaced: set[str] = set()
        self.running: dict[tuple[str, str], list[Call]] = defaultdict(list)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.failures: Counter[tuple[str, str]] = Counter()
        self.started: set[tuple[str, str]] = set()
        self.passed: set[tuple[str, str]] = set()
        self.succeeded: Counter[tuple[str, str]] = Counter()
        self.effects: Counter[tuple[str, str]] = Counter()
        self.acked: set[tuple[str, str]] = set()
        self.dropped: set[tuple[str, str]] = set()
        self.gone: set[tuple[str, str]] = set()
        self.emptied_groups: set[str] = set()
        self._collecting = set(self.groups)
        self._kept: list[tuple[str, int]] = []
        self.overtaken: set[tuple[str, str]] = set()
        self.dead: set[tuple[str, str]] = set()
        self.mourned: set[tuple[str, str]] = set()
        self.ids: dict[tuple[str, int, int], str] = {}
        self.retried: set[tuple[str, str]] = set()
        self.last_start_s: dict[str, float] = {}
        self.cut_short: set[tuple[str, str]] = set()
        self.forgotten: set[tuple[str, str]] = set()
        self.in_doubt: set[tuple[str, int]] = set()
        self.on_stored: Callable[[str], None] = lambda _: None
        self.on_handed_out: Callable[[str, Any], None] = lambda *_: None
        self._is_odd = plan.kind not in ("stream", "ordered") or plan.has(
            "store goes back", "store stands still"
        )
        self.is_over = False
        self.is_sought = False
        self.since_copy: set[str] | None = None
        self._then = self._stands()
        self._before_retry: set[tuple[str, str]] = set()
        self._mourned_before: set[tuple[str, str]] = set()
        self.lost: set[str] = set()
        self.doubtful_until_s = 0.0

    # From the store.

    def stored(self, entries: Any, outcomes: list[Outcome], now_ms: int) -> None:
        for entry, outcome in zip(entries, outcomes, strict=True):
            if outcome is Outcome.DUPLICATE:
                continue
            key = entry.key or entry.id
            self.key_of[entry.id] = key
            self.slot_of[entry.id] = entry.slot
            self.log("store", "has {} of {}, {}", entry.id, key, outcome)
            if entry.delay_ms:
                self.delayed.add(key)
            due_ms = now_ms + entry.delay_ms if entry.delay_ms else 0
            for group in self._collecting:
                self._is_for(group, entry.id, due_ms)
            if not self._collecting:
                self._kept.append((entry.id, due_ms))
            self.lost.discard(entry.id)
            if self.since_copy is not None:
                self.since_copy.add(entry.id)
            self.on_stored(entry.id)

    def _is_for(self, group: str, name: str, due_ms: int) -> None:
        """A group gets a message, for a time if there is one."""
        self.order[group, self.key_of[name]].append(name)
        if due_ms:
            self.due_ms[group, name] = due_ms

    def subscribed(self, group: str) -> None:
        """A group that was dropped is there again, with what was kept while there was none."""
        if group in self._collecting:
            return
        self._collecting.add(group)
        kept, self._kept = self._kept, []
        for name, due_ms in kept:
            self._is_for(group, name, due_ms)

    def unsubscribed(self, group: str, until_s: float) -> None:
        """A group was dropped: it gets nothing, and until then workers may own others' slots."""
        self._collecting.discard(group)
        self.doubtful_until_s = max(self.doubtful_until_s, until_s)

    def emptied(self, group: str, names: Iterable[str]) -> None:
        """An operator has emptied a group of these, or has dropped it with them."""
        places = {(group, name) for name in names}
        self.log("store", "has emptied {} of {}", group, sorted(places))
        self.gone |= places
        self.dropped |= places
        self.emptied_groups.add(group)
        for place in places:
            self.due_ms.pop(place, None)

    def comes_back(self, group: str, names: Iterable[str]) -> None:
        """A group is sent back before what it was emptied of."""
        places = self.gone & {(group, name) for name in names}
        self.gone -= places
        self.dropped -= places

    def handed_out(self, group: str, deliveries: Any) -> None:
        for one in deliveries:
            self.ids[group, one.slot, one.seq] = one.id
            if (group, one.id) in self.gone:
                self._broken(f"{one.id} is handed out to {group}, which was emptied of it")
        self.on_handed_out(group, deliveries)

    def left(self, group: str, slots: Iterable[int]) -> None:
        """A worker has ended, and could not revoke what it may have been handed out there."""
        self.in_doubt.update((group, slot) for slot in slots)

    def settled(self, group: str, settlements: Any, results: list[Settled]) -> None:
        for one, result in zip(settlements, results, strict=True):
            message = self.ids.get((group, one.slot, one.seq), "?")
            self.log("store", "{} of {} for {}: {}", one.verdict, message, group, result)
            if result is not Settled.SETTLED:
                continue
            if one.verdict is Verdict.ACK:
                self.acked.add((group, message))
                if self.plan.effect != "first" and (group, message) not in self.succeeded:
                    self._broken(f"{message} is acknowledged for {group}, and was never handled")
            elif one.verdict is Verdict.DEAD:
                self.dead.add((group, message))
                self.passed.add((group, message))
                if self.plan.options.get("on_dead") and (group, message) not in self.mourned:
                    self._broken(f"{message} is dead for {group}, and `on_dead` was not called")
            elif one.verdict is Verdict.RELEASE and self.plan.options.get("batch"):
                # Its user has it still as it goes back. What has returned behind it goes as well.
                line = self.order[group, self.key_of[message]]
                behind = {(group, each) for each in line[line.index(message) + 1 :]}
                self.cut_short |= behind & self.succeeded.keys() - self.acked

    def copied(self) -> None:
        """From now on the store is ahead of the server that it fails over to."""
        self.since_copy, self._then, self._before_retry = set(), self._stands(), set()
        self._mourned_before = set()

    def failed_over(self, until_s: float, has: Callable[[int], bool]) -> list[str]:
        """The store has forgotten what it has done since then; returns which messages.

        Args:
            until_s: until then workers may own what it says is others'.
            has: tells of which slots that holds.
        """

        def is_forgotten(name: Name) -> bool:
            return has(self.slot_of.get(name[1], 0))

        self.lost = {name for name in self.since_copy or () if has(self.slot_of[name])}
        self.since_copy = None
        ids, order, acked, dropped, gone, self._collecting, self._kept = self._then
        both = self.order.keys() | order.keys()
        of_key = {key: has(self.slot_of[name]) for name, key in self.key_of.items()}
        self.order = defaultdict(
            list, {each: (order if of_key[each[1]] else self.order).get(each, []) for each in both}
        )

        def known(now: set[Name], then: set[Name]) -> set[Name]:
            return {*filterfalse(is_forgotten, now), *filter(is_forgotten, then)}

        self.acked, self.dropped = known(self.acked, acked), known(self.dropped, dropped)
        self.gone = known(self.gone, gone)
        self.ids = {each: name for each, name in self.ids.items() if not has(each[1])} | {
            each: name for each, name in ids.items() if has(each[1])
        }
        self.passed |= self._before_retry
        self.started |= self._before_retry
        self.mourned |= self._mourned_before
        for line in self.order.values():
            line[:] = [name for name in line if name not in self.lost]
        self.doubtful_until_s = max(self.doubtful_until_s, until_s)
        return sorted(self.lost)

    def _stands(self) -> tuple[Any, ...]:
        """What the store has been told, as it stands now."""
        now = self.ids, self.order, self.acked, self.dropped, self.gone
        return deepcopy((*now, self._collecting, self._kept))

    def retries(self, group: str, ids: Iterable[str]) -> None:
        """Dead letters are due again, from their first attempt on; in `ordered` behind others."""
        for message in ids:
            name = group, message
            self.retried.add(name)
            self.dead.discard(name)
            self._mourned_before |= {name} & self.mourned
            self.mourned.discard(name)
            self.failures[name] = 0
            if self.plan.is_gentle:
                self.succeeded.pop(name, None)
            if self.plan.kind == "ordered":
                line = self.order[group, self.key_of[message]]
                line.remove(message)
                line.append(message)
                if self.plan.effect != "direct" and name in self.succeeded:
                    continue  # its checker knows that it was handled
                self._before_retry |= {name} & self.passed
                self.started.discard(name)
                self.passed.discard(name)

    def drops(self, group: str, ids: Iterable[str]) -> None:
        """Dead letters are removed."""
        self.dropped.update((group, message) for message in ids)

    def astray(self, is_dead: Callable[[str, str], bool]) -> list[tuple[str, str]]:
        """The messages that are neither acknowledged for a group, nor dead, nor dropped.

        Where subjects are queued anew, one may have given way to another.
        """
        if self.plan.kind not in ("stream", "ordered"):
            return []
        settled = self.acked | self.dropped
        names = {(group, each) for (group, _), line in self.order.items() for each in line}
        return sorted(name for name in names - settled if not is_dead(*name))

    def may_be_taken_back(self, group: str) -> bool:
        """Whether the store may have taken back what was handed out, though nothing was lost.

        An operator has emptied it. Or where a stream keeps order, a dead letter that is retried
        stands right behind the head of its key, and what was handed out with that head comes again
        behind it.
        """
        return group in self.emptied_groups or (
            self.plan.keeps_order and any(each == group for each, _ in self.retried)
        )

    @property
    def groups(self) -> list[str]:
        return [f"g{number}" for number in range(self.plan.groups)]

    # From handlers.

    def begins(self, call: Call) -> None:
        """A handler is called with a message."""
        it = call.message.delivery
        name = call.group, it.id
        who = call.worker.process.name
        self.log(who, "handles {} of {}, attempt {}", it.id, it.key, it.attempt)
        lane = call.group, it.key or it.id
        if call.is_certain and call.worker.process.scheduler.now >= self.doubtful_until_s:
            for other in self.running[lane]:
                if other.unit is not call.unit and other.is_certain:
                    self._broken(f"two handlers have {it.key} of {call.group}: {call} and {other}")
        if (self.is_sought or self.retried) and (self._begins_anew or self.emptied_groups):
            call.is_in_force = self._is_in_force(call.group, it)
        self.running[lane].append(call)
        if call.is_in_force:
            self._check_order(call, name)
        self._check_attempt(call, name)
        self._check_owned(call, name)
        due_ms = self.due_ms.get(name)
        if due_ms is not None and not self._is_odd:
            early_ms = due_ms - call.worker.connection.now_ms()
            if early_ms > 0:
                self._broken(f"{it.id} is handled {early_ms} ms before it is due")
        if self.plan.effect == "first" and name in self.started and not self.is_sought:
            self._broken(f"{it.id} is handled twice, though it was settled first")
        self.started.add(name)
        self.last_start_s[it.id] = call.worker.process.scheduler.now

    def next_act(self, group: str, message: str) -> Any:
        """What the next call of a handler does; each call does the next one."""
        acts = self.acts.get(message)
        if acts is None:
            return None
        number = self.calls[group, message]
        self.calls[group, message] += 1
        return acts[-1] if self.is_over else acts[min(number, len(acts) - 1)]

    def ends(self, call: Call, how: str, delay_ms: int = 0) -> None:
        """A handler has ended, or is about to say how."""
        name = call.group, call.message.id
        self.log(call.worker.process.name, "{}: {}", how, call.message.id)
        lane = call.group, call.message.key or call.message.id
        if how == "acks later":
            if not self.plan.options.get("batch"):
                return  # its key waits for its user
            self._pass(call)  # in a batch, the next part has the next of its key
        if call in self.running[lane]:
            self.running[lane].remove(call)
        if call.message.cancelled:
            self.cut_short.add(name)
            is_known = call.worker.is_out_of_grace or self.may_be_taken_back(call.group)
            if self.plan.is_gentle and not is_known and lane not in self.forgotten:
                self._broken(f"{call} is cancelled, though its worker has it still")
        if how in ("returns", "acks"):
            call.has_succeeded = True
            self.succeeded[name] += 1
            self._pass(call)
        elif how in ("fails", "later", "forgets", "rejects", "overruns"):
            if how != "rejects" and call.is_certain:
                self.failures[name] += 1
            is_last = call.message.attempt >= self.plan.options["max_attempts"]
            goes_on = self.plan.kind == "stream" and not self.plan.keeps_order
            if how == "forgets" and self.plan.options.get("batch"):
                goes_on = True  # as of `acks later`; what has begun behind it is then taken back
                self.forgotten.add(lane)
            if goes_on or how == "rejects" or is_last:
                self._pass(call)

    def refused(self, call: Call) -> None:
        """What a call has said comes too late: its message may have succeeded elsewhere alone."""
        name = call.group, call.message.id
        if call.has_succeeded:
            self.succeeded[name] -= 1
            if not self.succeeded[name]:
                del self.succeeded[name]

    def sought(self, group: str) -> None:
        """An operator has sent a group back to the beginning: where it keeps order, all begins."""
        self.is_sought = True
        if self._begins_anew:
            for names in (self.started, self.passed):
                names.difference_update([name for name in names if name[0] == group])

    @property
    def _begins_anew(self) -> bool:
        """Whether what comes again is handled again: a checker knows what was handled before."""
        is_in_order = self.plan.keeps_order or self.plan.kind == "ordered"
        return is_in_order and self.plan.effect == "direct"

    def _pass(self, call: Call) -> None:
        """Those behind it may be handled, unless a seek has come between, and it comes again."""
        if call.is_in_force or not self._begins_anew:
            self.passed.add((call.group, call.message.id))

    def mourn(self, message: Message, error: BaseException) -> None:
        """`on_dead` is called: those behind may be handled before the store has heard of it."""
        self.log("on_dead", "is told of {} of {}: {!r}", message.id, message.group, error)
        self.mourned.add((message.group, message.id))
        self.passed.add((message.group, message.id))

    def _check_order(self, call: Call, name: tuple[str, str]) -> None:
        kind, it = self.plan.kind, call.message.delivery
        if name in self.overtaken and not self.is_sought:
            self._broken(f"{it.id} of {it.key} is handled by {call.group} after one behind it")
        if kind not in ("stream", "ordered") or name in self.started or it.key is None:
            return
        if it.id in self.lost or name in self.gone:
            return  # its worker has it from before the failover, or from before it was removed
        if kind == "stream" and it.key in self.delayed:
            return
        group = call.group
        for earlier in self.order[call.group, it.key]:
            if earlier == it.id:
                return
            before = group, earlier
            if before in self.passed or self._is_dead(group, earlier):
                continue
            if kind == "stream" and before in self.retried:
                continue
            if self.plan.effect == "first" and before in self.acked:
                if before not in self.started:
                    self.overtaken.add(before)  # its worker has lost it: nobody may handle it now
                continue  # else its handler was cut off, also if a seek has it handled anew
            if any(
                other.message.id == earlier and other.unit is call.unit
                for other in self.running[group, it.key]
            ):
                continue
            self._broken(f"{it.id} of {it.key} is handled by {group} before {earlier}")

    def _check_attempt(self, call: Call, name: tuple[str, str]) -> None:
        it = call.message.delivery
        if it.attempt > self.plan.options["max_attempts"]:
            self._broken(f"{call} has more attempts than it may")
        is_exact = self.plan.is_exact and not self.is_over
        places = {(name[0], self.slot_of[it.id]), (name[0], it.slot)}
        is_exact = is_exact and self.in_doubt.isdisjoint(places)
        is_exact = is_exact and not self.may_be_taken_back(name[0])  # then its slot is taken anew
        if is_exact and it.attempt > 1 + self.failures[name]:
            self._broken(f"{call}, though its handler has failed {self.failures[name]} times")

    def _check_owned(self, call: Call, name: tuple[str, str]) -> None:
        worker = call.worker
        if call.is_fresh and call.group in worker.consumers:
            consumer = worker.consumers[call.group]
            is_late = consumer.slots.certain_until_s <= worker.process.monotonic_s()
            if is_late or call.message.delivery not in consumer.in_flight:
                self._broken(f"{call} is handled, though it may be another worker's")
        lane = call.group, call.message.key or call.message.id
        is_known = self.is_over or name in self.cut_short or lane in self.forgotten
        if self.plan.keeps_order:  # a dead letter may come into the midst of what is handed out
            is_known |= any(self.key_of.get(each) == call.message.key for _, each in self.retried)
        if self.plan.is_gentle and name in self.succeeded and not is_known:
            self._broken(f"{call} is handled again, though its handler has returned")

    def _broken(self, what: str) -> None:
        """Ends the run: a handler's error would be its message's."""
        self._fail(Broken(what))
