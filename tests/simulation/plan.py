"""What a run consists of, drawn from its seed: messages, what their handlers do, and faults."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec
from msgspec import structs

MESSAGES: Final = 50
FAULTS: Final = 10
WORKERS: Final = 3
SPAN_S: Final = 8.0
GENTLE: Final = (
    "stopped", "paused", "resized", "slow", "wall clock", "bells lost", "dead retried",
    "dead dropped",
)  # fmt: skip
FLAKY: Final = ("refused", "lost before", "lost after", "cut")
HARSH: Final = ("late", "frozen", "killed", "store stands still", "store goes back")
LEVELS: Final = {"gentle": GENTLE, "flaky": GENTLE + FLAKY, "harsh": GENTLE + FLAKY + HARSH}
"""Of the first two, a delivery may not count that has ended with no handler's error."""
SHORT_S: Final = 0.4
"""Flaky faults do not last until a lease or a session could end."""
PULLED: Final = 0.2
"""The share of plans whose messages are pulled by loops of the user's own, where that can be."""
ORDERLY: Final = 0.4
"""The share of plans of streams whose groups keep order."""
RELAYED: Final = 0.1
"""The share of plans some of whose messages go through an outbox."""
GROWN: Final = 0.1
"""The share of plans in which the topic's slots are doubled."""
SCHEDULED: Final = 0.1
"""The share of plans with schedules, which the workers lead."""
CATCH_UPS: Final = ("none", "latest", "all")
OVERLAPS: Final = ("allow", "allow", "skip", "queue_one", "queue_all")
DECIDED: Final = 0.1
"""The share of plans with many dead letters, which operators retry and drop."""
DYING: Final = 0.4
"""The share of their messages that are given up when they are handled first."""
TIMED: Final = 0.1
"""The share of plans with timers that are changed, where subjects are queued."""
TIMERS: Final = 12
EMPTIED: Final = 0.1
"""The share of plans in which operators empty groups, where no timers are changed."""
FAILING_OVER: Final = 0.2
"""The share of harsh plans in which the store fails over, where messages may come again.

And of the plans with an outbox the share in which its database does.
"""
SHARDED: Final = 0.5
"""The share of failovers that are those of one of several servers, where nothing else is drawn."""
PARKED: Final = 0.5
"""The share of harsh plans with streams that keep order whose store fails over among retries."""
PARKED_KEYS: Final = 6
TIMEOUT_S: Final = 0.5
STANDING: Final = 0.5
"""The share of plans in which pulls of idle workers stand in the store."""
WINDOW_S: Final = 5.0
FORBIDDEN: Final = 0.15
"""The share of plans that are not gentle in which rights are revoked, and given back."""
FORBIDDEN_S: Final = 4.0
REDECLARED: Final = 0.1
"""The share of plans with a topic that is deleted and declared anew."""
PUBLISHED: Final = 10
"""How many messages each of its users publishes."""
STRAY: Final = 0.5
"""The share of plans with an outbox, and without a failover, in which a second store has it too."""
AWAY: Final = {"gentle": (), "flaky": (), "harsh": ("late",)}
"""What more becomes of calls to the database of an outbox."""
HANDLERS_ONLY: Final = ("rate_limit", "over", "breaker")
STREAMS_ONLY: Final = ("sought",)
TIMERS_ONLY: Final = ("moved", "cancelled")


class Act(msgspec.Struct, frozen=True):
    """What one call of a handler does: how long it takes, and how it ends."""

    ends: str
    takes_s: float


class Sending(msgspec.Struct, frozen=True):
    """One message: when it is published, and what its handlers do, call after call."""

    number: int
    at_s: float
    key: int
    delay_s: float
    priority: int
    acts: tuple[Act, ...]


class Fault(msgspec.Struct, frozen=True):
    """Something that goes wrong, or that somebody does: when, for how long, and to whom."""

    what: str
    at_s: float
    lasts_s: float
    worker: int
    size: float


class FailoverPlan(msgspec.Struct, frozen=True):
    """A server fails over: when, and how far its successor is behind.

    It is a `shard` of so many `shards`, of which each has some of the slots.
    """

    at_s: float
    behind_s: float
    shards: int = 1
    shard: int = 0

    def has(self, slot: int) -> bool:
        """Whether the server has a slot."""
        return slot % self.shards == self.shard


class Binding(msgspec.Struct, frozen=True):
    """An operator binds an outbox to the run's store."""

    at_s: float


class StrayPlan(msgspec.Struct, frozen=True):
    """A second store, whose relay serves the run's outbox: when that starts.

    It waits until the outbox is bound. If `was_first`, the outbox belonged to the second store, and
    users wait until an operator has bound it to the run's store.
    """

    at_s: float
    was_first: bool
    bindings: tuple[Binding, ...]


class OutboxPlan(msgspec.Struct, frozen=True):
    """An outbox: how many of four keys are published there, and what its database does.

    `window_s` is for how long the topic knows an id, if that is not long. Then the database is away
    for `away_s` as soon as so many messages have come through: their rows outlive their ids. Else
    it may fail over. If nothing fails over, a second store may have the outbox too.
    """

    share: int
    window_s: float | None
    away_after: int
    away_s: float
    faults: tuple[Fault, ...]
    failover: FailoverPlan | None = None
    stray: StrayPlan | None = None


class GrowthPlan(msgspec.Struct, frozen=True):
    """The topic gets more slots: when, how many, and what becomes of who sees to it.

    `ends` is "is done", "dies" or "stands still", the latter two `after_s` it began; `lasts_s` is
    how long it stands still.
    """

    at_s: float
    slots: int
    ends: str
    after_s: float
    lasts_s: float


class ScheduleChange(msgspec.Struct, frozen=True):
    """What an operator does with a schedule.

    It is "paused", or "deleted", for `lasts_s`, "retimed" to tick every `every_s`, or "rewritten":
    it gets another body.
    """

    schedule: int
    what: str
    at_s: float
    lasts_s: float
    every_s: int


class SchedulesPlan(msgspec.Struct, frozen=True):
    """Schedules: how often each ticks, and what becomes of them; workers declare the first.

    `rules` has the `catch_up` and `overlap` of each. A tick is late after `grace_s`, and whoever
    handles what they publish settles all of it at each of the times `settled_at_s`.
    """

    every_s: tuple[int, ...]
    changes: tuple[ScheduleChange, ...]
    rules: tuple[tuple[str, str], ...]
    grace_s: float
    settled_at_s: tuple[float, ...]


class Decision(msgspec.Struct, frozen=True):
    """What an operator does with dead letters: they are "retried" or "dropped".

    It is done to "all", to those of a "cause", or "some", the first `share` of them by their ids.
    """

    what: str
    which: str
    group: int
    at_s: float
    share: float


class TimerAct(msgspec.Struct, frozen=True):
    """A change of a timer, so long after the one before: "moved", "cancelled" or "replaced"."""

    what: str
    after_s: float
    delay_s: float


class TimerPlan(msgspec.Struct, frozen=True):
    """A timer: when it is set, for when, and what becomes of it."""

    at_s: float
    delay_s: float
    changes: tuple[TimerAct, ...]


class PurgePlan(msgspec.Struct, frozen=True):
    """A group is emptied: when, and after how long it subscribes again; None if workers see to it.

    A stream's group is sent to the latest messages, and needs no subscription.
    """

    at_s: float
    group: int
    after_s: float | None


class TopicChange(msgspec.Struct, frozen=True):
    """A topic is deleted, and declared anew after so long, with a group or without one.

    If `after_s` is None, the operator leaves that to others.
    """

    at_s: float
    after_s: float | None
    kind: str
    slots: int
    has_group: bool


class RedeclaredPlan(msgspec.Struct, frozen=True):
    """A topic that is deleted and declared anew: what it is at first, and what becomes of it.

    Each of its users publishes at some times. If it `closes`, slots of a deleted topic are closed,
    as on Redis.
    """

    kind: str
    slots: int
    closes: bool
    changes: tuple[TopicChange, ...]
    published_at_s: tuple[tuple[float, ...], ...]


class Plan(msgspec.Struct, frozen=True):
    """A whole run.

    Where messages are pulled, `grace_s` is how long a pull retires until it is closed, and
    `puts_back` the share of messages that loops put back unseen.
    """

    seed: str
    level: str
    kind: str
    slots: int
    groups: int
    workers: int
    threads: int
    lease_s: float
    session_s: float
    grace_s: float
    effect: str
    options: dict[str, Any]
    rates: tuple[float, ...]
    messages: tuple[Sending, ...]
    faults: tuple[Fault, ...]
    is_pulled: bool = False
    puts_back: float = 0.0
    outbox: OutboxPlan | None = None
    growth: GrowthPlan | None = None
    schedules: SchedulesPlan | None = None
    decisions: tuple[Decision, ...] = ()
    timers: tuple[TimerPlan, ...] = ()
    purges: tuple[PurgePlan, ...] = ()
    failover: FailoverPlan | None = None
    stands: bool = False
    redeclared: RedeclaredPlan | None = None

    @property
    def is_exact(self) -> bool:
        """Whether attempts are what its handlers' errors make them."""
        return self.level in ("gentle", "flaky")

    @property
    def is_gentle(self) -> bool:
        """Whether nothing is lost: what was handled is not handled again."""
        return self.level == "gentle"

    @property
    def is_direct(self) -> bool:
        """Whether nothing stands between a worker's last look at what it owns and its handler."""
        return self.effect == "direct" and not self.options.keys() & {
            "batch",
            "rate_limit",
            "breaker",
        }

    @property
    def keeps_order(self) -> bool:
        """Whether it is a stream whose groups keep order."""
        return "keep_order" in self.options

    @property
    def forgets(self) -> bool:
        """Whether a handler ends without a word, and its message is to be collected."""
        return any(act.ends == "forgets" for each in self.messages for act in each.acts)

    def has(self, *names: str) -> bool:
        """Whether it has one of these faults."""
        return any(fault.what in names for fault in self.faults)


def drawn(seed: int | str) -> Plan:
    """The plan of a seed.

    Some have parts that others have not. These are drawn apart, so that all else of a seed stays
    as it was when there is one more such part.
    """
    plan, draw = _drawn(seed), Random(f"{seed}/parts")
    if draw.random() < PULLED and plan.effect == "direct" and "batch" not in plan.options:
        options = {name: plan.options[name] for name in plan.options if name not in HANDLERS_ONLY}
        plan = structs.replace(
            plan, is_pulled=True, options=options,
            grace_s=Random(f"{seed}/retired").choice([0.0, 3.0]),
            puts_back=Random(f"{seed}/puts").choice([0.0, 0.1]),
        )  # fmt: skip
    draw = Random(f"{seed}/order")
    if plan.kind == "stream" and draw.random() < ORDERLY:
        most = draw.choice([2, 1000])
        options = {**plan.options, "keep_order": True, "max_parked": most}
        plan = structs.replace(plan, options=options)
    draw = Random(f"{seed}/outbox")
    if draw.random() < RELAYED:
        outbox, draw = _outbox(draw, plan), Random(f"{seed}/outbox failover")
        if outbox.window_s is None and draw.random() < FAILING_OVER:
            outbox = structs.replace(outbox, failover=_failover(draw))
        plan = structs.replace(plan, outbox=outbox)
    draw = Random(f"{seed}/growth")
    if draw.random() < GROWN:
        plan = structs.replace(plan, growth=_growth(draw, plan))
    draw = Random(f"{seed}/schedules")
    if draw.random() < SCHEDULED:
        plan = structs.replace(plan, schedules=_schedules(draw))
    draw = Random(f"{seed}/decisions")
    if draw.random() < DECIDED and plan.effect != "first":
        plan = structs.replace(
            plan, messages=tuple(_dying(draw, each) for each in plan.messages),
            decisions=_decisions(draw, plan),
        )  # fmt: skip
    draw = Random(f"{seed}/timers")
    if draw.random() < TIMED and plan.kind != "stream":
        timers = tuple(_timer(draw, plan.kind) for _ in range(TIMERS))
        plan = structs.replace(plan, timers=timers)
    draw = Random(f"{seed}/purges")
    if draw.random() < EMPTIED and not plan.timers:
        purges = tuple(_purge(draw, plan) for _ in range(draw.randrange(1, 4)))
        plan = structs.replace(plan, purges=purges)
    draw = Random(f"{seed}/late replies")
    if draw.random() < STANDING:
        plan = structs.replace(plan, stands=True)
    draw = Random(f"{seed}/failover")
    if _may_fail_over(plan) and draw.random() < FAILING_OVER:
        plan = structs.replace(plan, failover=_failover(draw))
    draw = Random(f"{seed}/parking")
    if _may_fail_over(plan) and plan.keeps_order and draw.random() < PARKED:
        plan = structs.replace(
            plan, messages=tuple(_parked(draw, each) for each in plan.messages),
            options=plan.options if plan.is_pulled else {**plan.options, "timeout": TIMEOUT_S},
            failover=_failover(draw),
        )  # fmt: skip
    draw = Random(f"{seed}/shards")
    if plan.failover is not None and _may_have_shards(plan) and draw.random() < SHARDED:
        shards = draw.choice([2, 3])
        failover = structs.replace(plan.failover, shards=shards, shard=draw.randrange(shards))
        plan = structs.replace(plan, failover=failover)
    draw = Random(f"{seed}/forbidden")
    if not plan.is_gentle and draw.random() < FORBIDDEN:
        count = draw.randrange(1, 10 if plan.level == "flaky" else 4)
        faults = [_forbidden(draw, plan.level) for _ in range(count)]
        plan = structs.replace(plan, faults=(*plan.faults, *faults))
    draw = Random(f"{seed}/redeclared")
    if draw.random() < REDECLARED:
        plan = structs.replace(plan, redeclared=_redeclared(draw))
    return _strayed(Random(f"{seed}/stray"), plan)


def _forbidden(draw: Random, level: str) -> Fault:
    lasts_s = draw.uniform(0.05, SHORT_S if level == "flaky" else FORBIDDEN_S)
    at_s = draw.uniform(0, SPAN_S + 1 - lasts_s)
    return Fault("forbidden", at_s, lasts_s, draw.randrange(-1, WORKERS), draw.random())


def _redeclared(draw: Random) -> RedeclaredPlan:
    first = kind, slots = _kind_and_slots(draw)
    changes = []
    for _ in range(draw.randrange(1, 6)):
        at_s = draw.uniform(0.2, SPAN_S)
        after_s = draw.choice([0.0, draw.uniform(0, 0.1), draw.uniform(0, 2), None])
        if draw.random() < 0.5:
            kind, slots = _kind_and_slots(draw)
        changes.append(TopicChange(at_s, after_s, kind, slots, draw.random() < 0.5))
    times = [sorted(draw.uniform(0, SPAN_S + 1) for _ in range(PUBLISHED)) for _ in range(2)]
    return RedeclaredPlan(*first, draw.random() < 0.5, tuple(changes), tuple(map(tuple, times)))


def _kind_and_slots(draw: Random) -> tuple[str, int]:
    return draw.choice(["stream", "ordered", "delay", "priority"]), draw.choice([1, 2, 4])


def _strayed(draw: Random, plan: Plan) -> Plan:
    """The plan, perhaps with a second store, if there is an outbox and nothing fails over."""
    outbox = plan.outbox
    if outbox is None or outbox.failover or plan.failover or draw.random() >= STRAY:
        return plan
    return structs.replace(plan, outbox=structs.replace(outbox, stray=_stray(draw)))


def _stray(draw: Random) -> StrayPlan:
    was_first = draw.random() < 0.5
    bindings = [Binding(draw.uniform(0, SPAN_S)) for _ in range(draw.choice([0, 1, 2]))]
    if was_first:
        bindings.insert(0, Binding(draw.uniform(0, 3)))
    return StrayPlan(draw.uniform(0, 2 if was_first else SPAN_S), was_first, tuple(bindings))


def _parked(draw: Random, message: Sending) -> Sending:
    """A message of few keys, which may park its key some times; a handler may overrun its time."""
    acts = []
    for number in range(draw.choices([0, 1, 2, 3], [6, 2, 1, 1])[0]):
        ends = draw.choice(["later", "later", "fails", "returns", *([] if number else ["again"])])
        takes_s = TIMEOUT_S + draw.uniform(0, 0.5) if ends == "returns" else _takes(draw)
        acts.append(Act(ends, takes_s))
    acts += [structs.replace(act, takes_s=min(act.takes_s, TIMEOUT_S / 2)) for act in message.acts]
    return structs.replace(message, key=message.key % PARKED_KEYS, acts=tuple(acts))


def _failover(draw: Random) -> FailoverPlan:
    at_s = draw.uniform(0.5, SPAN_S)
    behind_s = min(at_s, draw.choice([draw.uniform(0, 0.1), draw.uniform(0, 3)]))
    return FailoverPlan(at_s, behind_s)


def _may_fail_over(plan: Plan) -> bool:
    """Whether a settlement that is forgotten breaks no promise."""
    return plan.level == "harsh" and plan.effect != "first"


def _may_have_shards(plan: Plan) -> bool:
    """Whether all there is lies in slots that stay where they are, and their groups."""
    others = plan.outbox, plan.growth, plan.schedules, plan.timers or None, plan.purges or None
    return plan.slots > 1 and others == (None,) * len(others)


def _growth(draw: Random, plan: Plan) -> GrowthPlan:
    ends = draw.choices(["is done", "dies", "stands still"], [2, 1, 1])[0]
    times = draw.choices([2, 4], [3, 1])[0] if plan.slots < 4 else 2
    after_s = draw.uniform(0, 6) if draw.random() < 0.8 else 0.0
    return GrowthPlan(draw.uniform(0.5, 6), plan.slots * times, ends, after_s, draw.uniform(1, 12))


def _schedules(draw: Random) -> SchedulesPlan:
    every_s = tuple(draw.choice([1, 1, 2, 3]) for _ in range(draw.randrange(1, 4)))
    changes = []
    for _ in range(draw.randrange(12)):
        number = draw.randrange(len(every_s))
        what = draw.choice(["paused", "deleted", "retimed", "rewritten"]) if number else "paused"
        at_s, lasts_s = draw.uniform(0, SPAN_S), draw.uniform(0.05, 4)
        changes.append(ScheduleChange(number, what, at_s, lasts_s, draw.choice([1, 2, 3])))
    changes.sort(key=lambda change: change.at_s)
    rules = tuple((draw.choice(CATCH_UPS), draw.choice(OVERLAPS)) for _ in every_s)
    settled_at_s = sorted(draw.uniform(0, SPAN_S) for _ in range(draw.randrange(12)))
    grace_s = draw.choice([1.5, 60.0])
    return SchedulesPlan(every_s, tuple(changes), rules, grace_s, tuple(settled_at_s))


def _dying(draw: Random, message: Sending) -> Sending:
    """A message, which may be given up when it is handled first."""
    if draw.random() >= DYING:
        return message
    return structs.replace(message, acts=(Act("rejects", _takes(draw)), *message.acts))


def _decisions(draw: Random, plan: Plan) -> tuple[Decision, ...]:
    found = []
    for _ in range(draw.randrange(1, 12)):
        what = draw.choice(["retried", "retried", "retried", "dropped"])
        which = draw.choice(["all", "all", "cause", "some"])
        at_s = draw.uniform(0.2, SPAN_S + 1)
        found.append(Decision(what, which, draw.randrange(plan.groups), at_s, draw.random()))
    return tuple(found)


def _timer(draw: Random, kind: str) -> TimerPlan:
    names = ["moved", "moved", "cancelled", *(["replaced"] if kind == "delay" else [])]
    first_s, changes = draw.uniform(0.05, 4), []
    delay_s = first_s
    for _ in range(draw.randrange(5)):
        after_s = draw.uniform(0, 1.2 * delay_s) if draw.random() < 0.7 else delay_s
        delay_s = draw.uniform(0, 3)
        changes.append(TimerAct(draw.choice(names), after_s, delay_s))
    return TimerPlan(draw.uniform(0, SPAN_S), first_s, tuple(changes))


def _purge(draw: Random, plan: Plan) -> PurgePlan:
    after_s = draw.choice([0.0, draw.uniform(0, 2), None])
    return PurgePlan(draw.uniform(0.5, SPAN_S + 1), draw.randrange(plan.groups), after_s)


def _outbox(draw: Random, plan: Plan) -> OutboxPlan:
    is_short = plan.level != "harsh" and plan.kind == "stream" and draw.random() < 0.5
    names = ["slow", *(FLAKY if plan.level != "gentle" else ()), *AWAY[plan.level]]
    faults = []
    for _ in range(draw.randrange(6)):
        what = draw.choice([name for name in names if name != "cut"])
        lasts_s = draw.uniform(0.05, 1) if draw.random() < 0.6 else draw.uniform(1, 6)
        at_s = draw.uniform(0, SPAN_S)
        faults.append(Fault(what, at_s, lasts_s, draw.randrange(-1, WORKERS), draw.random()))
    share = 4 if is_short else draw.choice([1, 2, 4])
    away_after, away_s = draw.randrange(1, MESSAGES // 2), draw.uniform(WINDOW_S, 2 * WINDOW_S)
    return OutboxPlan(
        share, WINDOW_S if is_short else None, away_after, away_s if is_short else 0.0,
        tuple(faults),
    )  # fmt: skip


def _drawn(seed: int | str) -> Plan:
    draw = Random(f"{seed}/plan")
    kind = draw.choices(["stream", "ordered", "delay", "priority", "merge"], [8, 7, 2, 2, 1])[0]
    level = draw.choices(list(LEVELS), [3, 3, 5])[0]
    effect = draw.choices(["direct", "marks", "transaction", "first"], [10, 3, 3, 1])[0]
    faults = _faults(draw, kind, level)
    options: dict[str, Any] = {"max_attempts": 16 if effect != "direct" else draw.choice([3, 16])}
    if draw.random() < 0.15 and effect != "first":
        options["batch"] = draw.choice([2, 5, 20])
    elif draw.random() < 0.1:
        options["serial"] = True
    if draw.random() < 0.15 and "batch" not in options:
        options["max_in_flight"] = draw.choice([1, 3, 8])
    if draw.random() < 0.08:
        options["rate_limit"] = draw.choice(["10/s", "50/s"])
        options["over"] = draw.choice(["worker", "group"])
    if draw.random() < 0.06:
        options["breaker"] = draw.choice([2, 4])
    mourns = Random(f"{seed}/on_dead").random()
    if mourns < 0.5:
        options["on_dead"] = True
    if mourns < 0.25 and options["max_attempts"] == 3:
        options["max_attempts"] = 1  # so that workers are lost at last attempts
    return Plan(
        str(seed), level, kind, draw.choice([1, 2, 4, 8]), draw.choices([1, 2], [4, 1])[0], WORKERS,
        draw.choice([1, 2, 3]), 4.0 if level == "flaky" else draw.choice([2.0, 4.0]),
        2.0 if level != "harsh" else draw.choice([1.0, 2.0]),
        draw.choice([0.2, 2.0]), effect, options,
        tuple(draw.uniform(0.99, 1.01) for _ in range(WORKERS + 1)),
        tuple(_message(draw, number, kind, effect) for number in range(MESSAGES)), faults,
    )  # fmt: skip


def _message(draw: Random, number: int, kind: str, effect: str) -> Sending:
    delay_s = draw.uniform(0.1, 4) if draw.random() < (0.5 if kind == "delay" else 0.05) else 0.0
    acts: list[Act] = []
    if effect == "direct" and draw.random() < 0.03:
        acts.append(Act("forgets", _takes(draw)))
    for _ in range(draw.choices([0, 1, 2], [7, 2, 1])[0]):
        ends = draw.choice(["fails", "fails", "again", "later"])
        acts.append(Act(ends, _takes(draw)))
    last = "returns"
    if effect == "marks" and draw.random() < 0.1:
        last = "acks later"
    if effect == "direct":
        last = draw.choices(["returns", "rejects", "acks later"], [40, 2, 3])[0]
    acts.append(Act(last, _takes(draw)))
    return Sending(
        number, draw.uniform(0, SPAN_S), draw.randrange(12), delay_s, draw.randrange(3), tuple(acts)
    )


def _takes(draw: Random) -> float:
    return draw.choices([0.0, draw.uniform(0, 0.05), draw.uniform(0.2, 2)], [60, 36, 4])[0]


def _faults(draw: Random, kind: str, level: str) -> tuple[Fault, ...]:
    names = list(LEVELS[level])
    if kind == "stream" and level == "harsh":
        names += STREAMS_ONLY
    if kind in ("delay", "priority", "merge"):
        names += TIMERS_ONLY
    faults = []
    for _ in range(FAULTS):
        what = draw.choice(names)
        lasts_s = draw.uniform(0.05, 1) if draw.random() < 0.6 else draw.uniform(1, 7)
        if level == "flaky" and what in FLAKY:
            lasts_s = min(lasts_s, SHORT_S)
        worker = draw.randrange(-1, WORKERS)
        at_s = draw.uniform(
            0, SPAN_S + 1 - lasts_s
        )  # it ends while there is traffic, or soon after
        faults.append(Fault(what, at_s, lasts_s, worker, draw.random()))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))
