"""Who had which slot from when to when, and what may not be where that is known.

A *tenure* is one worker's time with a slot: from the answer of the store by which it took the slot
to the moment at which it lost it. It loses it when it says so itself, when the store has given the
slot to another under a larger epoch, and when it dies.

The rule for two handlers of a key at once: it is a violation unless

- the older one began in a tenure of its worker's, which was over when the younger one began; and
- by then the worker had lost its right by a fault of its own: it had been frozen, or cut off from
  its coordinator, for as long as costs it its slots (`Crew.limit_ns`), or had said that it is in
  doubt, or was killed; or it, or the whole machine, had stood still for so long;
- the older one began before that fault had lasted so long.

So a fault excuses what its worker had in hand when it lost its slots, and nothing that it began
afterwards, nor anything of other workers. Two handlers at once in one worker have no excuse.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

from checkers import FOREVER_NS, Handling, overlaps, told
from history import (
    ACCEPTED,
    ATTENDED,
    CUT,
    DIED,
    FROZEN,
    KILLED,
    MENDED,
    NEMESIS,
    STARTED,
    STOOD_STILL,
    THAWED,
    TOOK,
    Fact,
)

LEFT = "slot.left"
LOST = "slot.lost"
DOUBTFUL = "session.doubtful"


class Tenure(NamedTuple):
    """One worker's time with a slot.

    Attributes:
        slot, by, epoch: what, whose, and under which epoch.
        asked_ns, from_ns: when it asked for the slot, and when it had it.
        until_ns, end: when it gave it up or died, and which fact says so.
        passed_ns: when the store had given the slot to another under a larger epoch, or one of
            those into which it was split to anybody.
    """

    slot: int
    by: str
    epoch: str
    asked_ns: int
    from_ns: int
    until_ns: int
    end: str
    passed_ns: int

    @property
    def lost_ns(self) -> int:
        """When it was over."""
        return min(self.until_ns, self.passed_ns)


class Fault(NamedTuple):
    """What was done to a worker, or to all.

    Attributes:
        what, by: what, and to whom; nobody is named where it was all.
        from_ns, struck_ns: since when it may have been so, and since when it was for sure.
        until_ns: until when.
    """

    what: str
    by: str
    from_ns: int
    struck_ns: int
    until_ns: int


class Tenures:
    """The tenures of one topic's slots, by slot and worker.

    Args:
        facts: the history.
        topic: the topic's name.
        slots: how many it has at first.
        most: how many it may have grown to.
    """

    def __init__(self, facts: Sequence[Fact], topic: str, slots: int, most: int = 0) -> None:
        self._slots = slots
        self._most = max(slots, most)
        self._by: dict[tuple[int, str], list[Tenure]] = defaultdict(list)
        self.all: list[Tenure] = []
        its = [fact for fact in facts if fact.topic in ("", topic)]
        for tenure in _tenures(its, self._halves):
            self._by[tenure.slot, tenure.by].append(tenure)
            self.all.append(tenure)

    def slots_of(self, key: str) -> list[int]:
        """The slots in which a key may have been, one after the other."""
        slots, found, first = self._slots, [], 0
        while slots <= self._most:
            found.append(first + crc32(key.encode()) % slots)
            first, slots = first + slots, 2 * slots
        return found

    def _halves(self, slot: int) -> tuple[int, ...]:
        """The two slots into which one is split, if its topic may grow so far."""
        slots, first = self._slots, 0
        while slots < self._most:
            if slot < first + slots:
                return (slot + slots, slot + 2 * slots)
            first, slots = first + slots, 2 * slots
        return ()

    def at(self, start: Fact) -> Tenure | None:
        """The tenure in which, or after which, a handler started; None if there had been none."""
        begun = [self.at_slot(slot, start.by, start.at_ns) for slot in self.slots_of(start.key)]
        return max(
            (one for one in begun if one is not None),
            key=lambda one: (min(one.lost_ns, start.at_ns), one.from_ns), default=None,
        )  # fmt: skip

    def at_slot(self, slot: int, by: str, at_ns: int) -> Tenure | None:
        """The last tenure of a slot that a worker had begun by then."""
        return next((one for one in reversed(self._by[slot, by]) if one.from_ns <= at_ns), None)

    def next_of(self, slot: int, than: str, after_ns: int) -> Tenure | None:
        """The next tenure of a slot, of another worker."""
        later = [
            one for one in self.all
            if one.slot == slot and one.by != than and one.from_ns > after_ns
        ]  # fmt: skip
        return min(later, key=lambda one: one.from_ns, default=None)


def faults(facts: Sequence[Fact]) -> list[Fault]:
    """What was done to workers, and the doubts that they had of themselves."""
    ends = {THAWED: FROZEN, MENDED: CUT}
    open_: dict[tuple[str, str], Fact] = {}
    found = []
    for fact in facts:
        if fact.what in (FROZEN, CUT):
            open_[fact.what, fact.by] = fact
        elif fact.what in ends:
            begun = open_.pop((ends[fact.what], fact.by))
            found.append(Fault(begun.what, fact.by, begun.since_ns, begun.at_ns, fact.at_ns))
        elif fact.what == STOOD_STILL:
            by = "" if fact.by == NEMESIS else fact.by
            found.append(Fault(fact.what, by, fact.since_ns, fact.since_ns, fact.at_ns))
        elif fact.what in (KILLED, DOUBTFUL):
            found.append(Fault(fact.what, fact.by, fact.at_ns, fact.at_ns, FOREVER_NS))
    found += [
        Fault(one.what, one.by, one.since_ns, one.at_ns, FOREVER_NS) for one in open_.values()
    ]
    return sorted(found, key=lambda one: one.from_ns)


class Judgement(NamedTuple):
    """The overlaps of a history: those without an excuse in sentences, the excuses counted."""

    violations: list[str]
    excused: Counter[str]


def judge(facts: Sequence[Fact], tenures: Tenures, limit_ns: int) -> Judgement:
    """All overlaps; a freeze or a cut excuses from `limit_ns` on."""
    of: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults(facts):
        of[fault.by].append(fault)
    judgement = Judgement([], Counter())
    for before, one in overlaps(facts):
        excuse = _excuse(before, one, tenures, of[before.start.by] + of[""], limit_ns)
        if excuse:
            judgement.excused[excuse] += 1
        else:
            judgement.violations.append(told(before, one))
    return judgement


def strays(facts: Sequence[Fact], tenures: Tenures) -> list[tuple[Fact, int]]:
    """Handlers that started when their worker had lost the slot, and for how long it had."""
    found = []
    for fact in facts:
        if fact.what == STARTED:
            tenure = tenures.at(fact)
            if tenure is None:
                found.append((fact, FOREVER_NS))
            elif fact.at_ns > tenure.lost_ns:
                found.append((fact, fact.at_ns - tenure.lost_ns))
    return found


def accepted_late(facts: Sequence[Fact], tenures: Tenures) -> list[str]:
    """Acknowledgements sent after another had taken the slot, and accepted all the same."""
    wrong = []
    for fact in facts:
        if fact.what != ACCEPTED:
            continue
        for slot in set(fact.slots):
            tenure = tenures.at_slot(slot, fact.by, fact.since_ns)
            if tenure is None or tenure.passed_ns < fact.since_ns:
                wrong.append(f"slot {slot}: {fact.by} was accepted, asking at {fact.since_ns}")
    return wrong


def accepted_twice(facts: Sequence[Fact]) -> list[str]:
    """Messages of which the store has accepted two acknowledgements."""
    counts = Counter(
        (fact.topic, place) for fact in facts if fact.what == ACCEPTED for place in fact.texts
    )
    return [f"{place} of {topic}: {n} times" for (topic, place), n in counts.items() if n > 1]


def taken_early(facts: Sequence[Fact], tenures: Tenures, session_ns: int) -> list[str]:
    """Slots that passed from a living worker to another while its last lease had still to run.

    A worker that gives a slot up says so when the store has it; by then another may have taken it.
    """
    killed = {fact.by: fact.at_ns for fact in facts if fact.what == KILLED}
    signs: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.what == ATTENDED:
            signs[fact.by].append(fact)
    wrong = []
    for one in tenures.all:
        until_ns = min(one.until_ns, killed.get(one.by, FOREVER_NS))
        if one.passed_ns >= until_ns or one.end == LEFT:
            continue
        sent_ns = max(sign.since_ns for sign in signs[one.by] if sign.at_ns < one.passed_ns)
        if one.passed_ns < sent_ns + session_ns:
            wrong.append(f"slot {one.slot} of {one.by}: {(one.passed_ns - sent_ns) / 1e9:.2f} s")
    return wrong


def shared_epochs(tenures: Tenures) -> list[str]:
    """Epochs under which two workers have taken a slot, and epochs that ran backwards."""
    highest: dict[int, Tenure] = {}
    wrong = []
    for one in sorted(tenures.all, key=lambda one: one.from_ns):
        before = highest.get(one.slot)
        if before is not None and one.epoch == before.epoch and one.by != before.by:
            wrong.append(f"slot {one.slot}: {one.by} and {before.by} took it under {one.epoch}")
        # Of two that took it at about the same time the later answer may be written first.
        if before is not None and one.epoch < before.epoch and one.asked_ns > before.from_ns:
            wrong.append(f"slot {one.slot}: {one.by} took it under {one.epoch} < {before.epoch}")
        if before is None or one.epoch > before.epoch:
            highest[one.slot] = one
    return wrong


def _tenures(facts: Sequence[Fact], halves: Callable[[int], Sequence[int]]) -> list[Tenure]:
    """All tenures, by their beginnings.

    A worker tells the end of each tenure once, and may do so when it has the slot again: the thread
    that took it away tells that, another one takes it. So the first end is that of the first one.
    """
    ends: dict[tuple[str, int], deque[Fact]] = defaultdict(deque)
    deaths: dict[str, Fact] = {}
    takings: dict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for fact in facts:
        if fact.what in (LEFT, LOST):
            for slot in fact.slots:
                ends[fact.by, slot].append(fact)
        elif fact.what == DIED:
            deaths[fact.by] = fact
        elif fact.what == TOOK:
            for slot, epoch in zip(fact.slots, fact.texts, strict=True):
                takings[slot].append((fact.at_ns, epoch, fact.by))
    found = []
    known: set[tuple[str, int, str]] = set()
    for fact in facts:
        if fact.what != TOOK:
            continue
        for slot, epoch in zip(fact.slots, fact.texts, strict=True):
            if (
                fact.by,
                slot,
                epoch,
            ) in known:  # one of the others was refused: all are asked for again
                continue
            known.add((fact.by, slot, epoch))
            told = ends[fact.by, slot]
            over = told.popleft() if told else deaths.get(fact.by)
            until_ns, end = (FOREVER_NS, "") if over is None else (over.at_ns, over.what)
            passed_ns = min(
                [at_ns for at_ns, other, by in takings[slot] if other > epoch and by != fact.by]
                + [at_ns for half in halves(slot) for at_ns, _, _ in takings[half]],
                default=FOREVER_NS,
            )
            found.append(
                Tenure(slot, fact.by, epoch, fact.since_ns, fact.at_ns, until_ns, end, passed_ns)
            )
    return found


def _excuse(
    before: Handling, one: Handling, tenures: Tenures, of_before: Sequence[Fault], limit_ns: int
) -> str | None:
    """Why two handlers of a key at once are no violation; None if they are."""
    started_ns, now_ns = before.start.at_ns, one.start.at_ns
    tenure = tenures.at(before.start)
    if before.start.by == one.start.by or tenure is None:
        return None
    if started_ns > tenure.lost_ns or tenure.lost_ns > now_ns:
        return None
    for fault in of_before:
        lasted = 0 if fault.what in (KILLED, DOUBTFUL) else limit_ns
        told_ns = fault.from_ns + lasted
        began_before = fault.what == KILLED or started_ns <= fault.struck_ns + lasted
        if began_before and told_ns <= now_ns and told_ns <= fault.until_ns:
            return fault.what
    return None
