"""What an actor may do: a row for each operation of the contract, and of `Admin`.

A new operation of a store is one more row: its name, which begins with that of its method, and how
its arguments are drawn from a scene. What it returns is compared as it is, unless `seen` says what
of it counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from timer_acts import cancel, edit
from topic_kinds import of_kind

from interleaving.plain import plain
from interleaving.scenes import LEASE_MS, NEW_GROUP, START_MS, Act, Scene, epoch, settlement
from qframe.admin.admin import Admin
from qframe.admin.timers import Timers
from qframe.outcomes import Verdict
from qframe.roster import Roster
from qframe.stores.base import Store
from qframe.stores.documents import NO_VERSION, WHOLE, Place, Space, Span, Write
from qframe.stores.records import (
    ChosenDead,
    Found,
    HeadPlace,
    LookUp,
    PageAsk,
    ScanPage,
    Section,
    Sought,
)
from qframe.stores.types import LeaseRef, PullRequest, PullTerms
from qframe.topic import Kind, Topic

SUBJECTS = tuple(kind for kind in Kind if kind is not Kind.STREAM)
VERDICTS = tuple(Verdict)


class Actor(NamedTuple):
    """One of the two: `number` is 1 or 2, and what it draws differs with it."""

    scene: Scene
    number: int
    draw: random.Random

    @property
    def group(self) -> str:
        return self.draw.choice(["g", "g", *self.scene.groups])

    def asks(self, limit: int) -> list[PullRequest]:
        return [PullRequest(slot, epoch(1), limit) for slot in range(self.scene.slots)]

    def subject(self) -> str:
        """A subject that both may choose."""
        in_hand = [one.subject for one in self.scene.in_hand["g"] if one.subject]
        return self.draw.choice(["a", "a", "b", *in_hand[:1]])


def as_it_is(result: Any) -> Any:
    return result


def nothing(result: Any) -> None:
    """Nothing of it counts."""


class Operation(NamedTuple):
    """A row.

    Attributes:
        name: what it is called; its first word is the method of the store.
        drawn: draws what an actor does.
        kinds: the kinds of topics that have it.
        looks: whether it changes nothing.
        seen: what of its result is compared.
        by_step: whether it is several calls of the store, between which others may act.
    """

    name: str
    drawn: Callable[[Actor], Act]
    kinds: Collection[Kind] = tuple(Kind)
    looks: bool = False
    seen: Callable[[Any], Any] = as_it_is
    by_step: bool = False


def _publish(by: Actor) -> Act:
    entries = [by.scene.entry(by.draw, f"{by.number}00{each}") for each in range(3)]
    # Both bring one under the same name.
    entries.insert(1, by.scene.entry(by.draw, "named", named=True))
    # Each brings its place in a series; the second's is the later one, and may come first.
    of_series = by.scene.entry(by.draw, f"place-{by.number}", named=True)
    of_series.series = ("series", by.number)
    entries.append(of_series)
    return lambda store, topic: store.publish(topic, entries)


def _sweep(by: Actor) -> Act:
    return lambda store, topic: store.sweep(topic)


def _declare(by: Actor) -> Act:
    def declare(store: Store, topic: Topic) -> None:
        store.declare(Topic(
            topic.name, topic.kind, topic.slots, dedupe_window="1s",
            history=topic.history_ms / 1000 or None, **of_kind(topic.kind, retain="3s"),
        ))  # fmt: skip

    return declare


def _pull(by: Actor) -> Act:
    group, asks = by.group, by.asks(by.draw.choice([1, 2, 50]))
    return lambda store, topic: store.pull(
        topic, group, asks, PullTerms(f"p{by.number}", LEASE_MS, 2)
    )


def _renew(by: Actor) -> Act:
    holds = [
        LeaseRef(one.slot, epoch(1), one.subject, one.receipt) for one in by.scene.in_hand["g"]
    ]
    return lambda store, topic: store.renew(topic, "g", holds, 2 * LEASE_MS)


def _revoke(by: Actor) -> Act:
    receipts = [one.receipt for one in by.scene.in_hand["g"]] or ["none"]
    asks, receipt = by.asks(0), receipts[-1]
    return lambda store, topic: store.revoke(topic, "g", asks, receipt)


def _settle(by: Actor) -> Act:
    chosen = [
        settlement(one, by.draw.choice(VERDICTS), by.draw.choice([0, 50]))
        for one in by.scene.in_hand["g"]
    ]
    return lambda store, topic: store.settle(topic, "g", chosen)


def _acknowledge(by: Actor) -> Act:
    in_hand, epochs = by.scene.in_hand["g"], dict.fromkeys(range(by.scene.slots), epoch(1))
    return lambda store, topic: store.acknowledge(topic, "g", in_hand, epochs)


def _subscribe(by: Actor) -> Act:
    start = by.draw.choice(["earliest", "earliest", "latest"])
    beside = by.draw.choice([[], [], ["g"], ["h"]])
    return lambda store, topic: store.subscribe(topic, NEW_GROUP, start, beside=beside)


def _subscribe_again(by: Actor) -> Act:
    expires_ms = by.draw.choice([None, 700])
    return lambda store, topic: store.subscribe(topic, "g", "earliest", expires_ms)


def _seek(by: Actor) -> Act:
    to = {slot: by.draw.choice([0, 1, 3, 99]) for slot in range(by.scene.slots)}
    return lambda store, topic: store.seek(topic, "g", to)


def _take(by: Actor) -> Act:
    epochs = dict.fromkeys(range(by.scene.slots), epoch(by.number + 1))
    return lambda store, topic: store.take(topic, "g", epochs)


def _claim(by: Actor) -> Act:
    member, epochs = f"m{by.draw.choice([0, by.number])}", {0: epoch(by.number + 1)}

    def claim(store: Store, topic: Topic) -> list[int]:
        return store.claim(topic, "g", member, epochs)

    return claim


def _tune(by: Actor) -> Act:
    values = {"threads": by.draw.choice(["3", None]), "in_flight": f"{by.number}"}
    return lambda store, topic: store.tune(topic, "g", values)


def _edit(by: Actor) -> Act:
    subject = by.subject()
    due_ms = by.draw.choice([None, START_MS, START_MS + 30, START_MS + 5000])
    body = by.draw.choice([b'"new %d"' % by.number, None]) if due_ms is not None else b'"new"'
    return lambda store, topic: edit(
        store, topic, subject, due_ms=due_ms, body=body, headers={"x": "y"}
    )


def _cancel(by: Actor) -> Act:
    subject = by.subject()
    return lambda store, topic: cancel(store, topic, subject)


def _timer(by: Actor) -> Act:
    subject = by.subject()
    return lambda store, topic: store.timer(topic, subject)


def _named_dead(by: Actor) -> list[str]:
    return by.scene.dead[: by.draw.choice([1, 2])]


def _retry_dead(by: Actor) -> Act:
    ids = _named_dead(by)
    return lambda store, topic: store.retry_dead(topic, "g", ChosenDead(ids))


def _drop_dead(by: Actor) -> Act:
    ids = _named_dead(by)
    return lambda store, topic: store.drop_dead(topic, "g", ChosenDead(ids))


def _standing(by: Actor) -> HeadPlace:
    """The place of a message that may stand first."""
    if not by.scene.standing:
        return HeadPlace(0, "0", 0)
    return by.draw.choice(by.scene.standing).head_place


def _hasten(by: Actor) -> Act:
    place = _standing(by)
    return lambda store, topic: store.hasten(topic, "g", place)


def _skip(by: Actor) -> Act:
    place, force = _standing(by), by.draw.choice([True, False])
    return lambda store, topic: store.skip(topic, "g", place, "skipped", force=force)


def _write_documents(by: Actor) -> Act:
    """Two documents, of which each writer ranks one before the other."""
    value, version = by.draw.choice([f"v{by.number}", None]), by.draw.choice([NO_VERSION, None])
    writes = [Write("d", value, version, by.number), Write("e", f"e{by.number}", None, 1)]
    return lambda store, topic: [
        written is not None
        for written in store.write_documents(topic, "g", Space.TUNING, writes)
    ]  # fmt: skip


def _read_document(store: Store, topic: Topic) -> list[str]:
    found = store.read_documents([Place(topic, "g", Space.TUNING, "d")])
    return [each.value for each in found if each is not None]


def _list_documents(by: Actor) -> Act:
    """Versions are drawn at random."""
    span = by.draw.choice([WHOLE, Span(limit=1), Span(until=1)])
    return lambda store, topic: [
        (each.name, each.value, each.rank)
        for each in store.list_documents(topic, "g", Space.TUNING, span).documents
    ]


def _report(by: Actor) -> Act:
    worker, text = by.draw.choice(["w", f"w{by.number}"]), f"said by {by.number}"
    return lambda store, topic: store.report(topic, "g", worker, text)


def _find(by: Actor) -> Act:
    if by.scene.kind is Kind.STREAM and by.draw.random() < 0.5:
        sought = Sought(offset=by.draw.choice([0, 1, 3]))
    else:
        sought = Sought(key=by.draw.choice(["a", "b"]))
    return lambda store, topic: store.find(topic, sought)


def _marked(by: Actor) -> Act:
    ids = by.scene.ids
    return lambda store, topic: store.marked(topic, ids)


def _find_id(by: Actor) -> Act:
    sought = Sought(id=by.draw.choice(by.scene.ids))
    return lambda store, topic: store.find(topic, sought)


def _delete_whole(store: Store, topic: Topic) -> None:
    while not store.delete(topic):
        pass


def _history(by: Actor) -> Act:
    message_id = by.draw.choice(by.scene.ids)
    return lambda store, topic: store.history(topic, message_id)


def _ends(by: Actor) -> Act:
    message_id = by.draw.choice(by.scene.ids)
    return lambda store, topic: store.ends(topic, topic.all_slots, message_id)


def _last_ended(by: Actor) -> Act:
    key = by.draw.choice(["a", "b"])
    return lambda store, topic: store.last_ended(topic, key)


def _admin(do: Callable[[Admin, Topic], Any]) -> Callable[[Actor], Act]:
    def drawn(by: Actor) -> Act:
        return lambda store, topic: do(Admin(store, roster=_roster_of(store)), topic)

    return drawn


def _roster_of(store: Store) -> Callable[[Topic, str], Roster]:
    def found(topic: Topic, group: str) -> Roster:
        roster = store.roster(topic, group)
        assert roster is not None
        return roster

    return found


def _timers_move(by: Actor) -> Act:
    subject = by.draw.choice(["a", "b"])
    return lambda store, topic: Timers(store, None).move(topic, subject, delay=0.1)  # type: ignore[arg-type]


def _each(do: Callable[[Store, Topic], Any]) -> Callable[[Actor], Act]:
    """What every actor does alike."""
    return lambda by: do


def _of_find(found: Found) -> Any:
    """Each store has its own order."""
    return sorted(plain(found.records), key=str), sorted(found.remembered), found.kept


def _of_scan(page: ScanPage) -> Any:
    """Each store has its own order and its own places."""
    return sorted(plain(page.records), key=str), page.place is None


def _of_roster(found: Roster | None) -> Any:
    """Versions are drawn at random."""
    return found and (found.members, sorted(found.owners.items()))


STATES = ("doing", "todo", "waiting", "held", "dead")

ASKS = [
    PageAsk(Section(0, part, "g"))
    for part in ("later", "held", "behind", "heads", "dead", "doing", "timers", "died")
]
LOOK_UPS = [LookUp(Section(0, part, "g"), "subject", ["a"]) for part in ("behind", "heads")]

OPERATIONS = [
    Operation("declare", _declare),
    Operation("topic", _each(lambda store, topic: store.topic(topic.name) is not None), looks=True),
    Operation("topics", _each(lambda store, topic: topic in store.topics()), looks=True,
              seen=nothing),  # another's options may be changed
    Operation("latest", _each(lambda store, topic: store.latest([topic]) != [None]), looks=True),
    Operation("birth", _each(lambda store, topic: bool(store.birth(topic))), looks=True),
    Operation("sweep", _sweep, seen=nothing),
    Operation("delete", _each(_delete_whole), by_step=True),
    Operation("publish", _publish),
    Operation("pull", _pull),
    Operation("renew", _renew),
    Operation("revoke", _revoke),
    Operation("settle", _settle),
    Operation("acknowledge", _acknowledge),
    Operation("subscribe", _subscribe),
    Operation("subscribe again", _subscribe_again),
    Operation("groups", _each(lambda store, topic: store.groups(topic)), looks=True),
    Operation("drop_group", _each(lambda store, topic: store.drop_group(topic, "g"))),
    Operation("seek", _seek, (Kind.STREAM,)),
    Operation("offsets_at", _each(lambda store, topic: store.offsets_at(topic, START_MS + 50)),
              (Kind.STREAM,), looks=True),
    Operation("epochs", _each(lambda store, topic: store.epochs(topic, "g")), looks=True),
    Operation("take", _take),
    Operation("read_documents", _each(_read_document), looks=True),
    Operation("write_documents", _write_documents),
    Operation("list_documents", _list_documents, looks=True),
    Operation("heartbeat", lambda by: lambda store, topic: store.heartbeat(
        topic, "g", f"m{by.number}", LEASE_MS), seen=nothing, by_step=True),
    Operation("roster", _each(lambda store, topic: store.roster(topic, "g")), looks=True,
              seen=_of_roster),
    Operation("claim", _claim, by_step=True),
    Operation("release_slots", _each(lambda store, topic: store.release_slots(
        topic, "g", "m0", [0])), by_step=True),
    Operation("retire", _each(lambda store, topic: store.retire(topic, "g", "m0")), by_step=True),
    Operation("leave", _each(lambda store, topic: store.leave(topic, "g", "m0")), by_step=True),
    Operation("tune", _tune, by_step=True),
    Operation("tunings", _each(lambda store, topic: store.tunings([(topic, "g")])), looks=True),
    Operation("draw", lambda by: lambda store, topic: store.draw(
        topic, "g", 2, rate=3, per_ms=1000, burst=3)),
    Operation("report", _report, by_step=True),
    Operation("reports", _each(lambda store, topic: store.reports(topic, "g")), looks=True),
    Operation("rewrite edited", _edit, SUBJECTS),
    Operation("rewrite cancelled", _cancel, SUBJECTS),
    Operation("timer", _timer, SUBJECTS, looks=True),
    Operation("timers", _each(lambda store, topic: store.timers(topic)), SUBJECTS, looks=True),
    Operation("dead", _each(lambda store, topic: store.dead(topic, "g")), looks=True),
    Operation("retry_dead", _retry_dead, by_step=True),
    Operation("retry_dead all", _each(lambda store, topic: store.retry_dead(topic, "g")),
              by_step=True),
    Operation("drop_dead", _drop_dead, by_step=True),
    Operation("drop_dead all", _each(lambda store, topic: store.drop_dead(topic, "g")),
              by_step=True),
    Operation(
        "first_of_key", _each(lambda store, topic: store.first_of_key(topic, "g", "a")), looks=True
    ),
    Operation("hasten", _hasten, by_step=True),
    Operation("skip", _skip, by_step=True),
    Operation("stats", _each(lambda store, topic: store.stats(topic)), looks=True),
    Operation("peek", _each(lambda store, topic: store.peek(
        topic, "g", states=STATES, limit=100)), looks=True),
    Operation("find", _find, looks=True, seen=_of_find),
    Operation("find id", _find_id, looks=True,
              seen=lambda found: (sorted(found.remembered), found.kept)),  # what was delayed is not
    Operation("ends", _ends, looks=True, seen=lambda ends: sorted(plain(ends), key=str)),
    Operation("history", _history, looks=True, seen=lambda ends: sorted(plain(ends), key=str)),
    Operation("last_ended", _last_ended, looks=True,
              seen=lambda ends: sorted(plain(ends), key=str)),
    Operation("scan", _each(lambda store, topic: store.scan(topic, limit=1000)), looks=True,
              seen=_of_scan),
    Operation("repair", _each(lambda store, topic: store.repair(topic)), looks=True),
    Operation("verify", _each(lambda store, topic: store.verify(topic)), looks=True),
    Operation("now_ms", _each(lambda store, topic: store.now_ms()), looks=True),
    Operation("pages", _each(lambda store, topic: store.pages(topic, ASKS)), looks=True,
              seen=lambda pages: [sorted(plain(page.records), key=str) for page in pages]),
    Operation("look_up", _each(lambda store, topic: store.look_up(topic, LOOK_UPS)), looks=True),
    Operation("spans", _each(lambda store, topic: store.spans(topic)), (Kind.STREAM,), looks=True),
    Operation("marked", _marked, looks=True, seen=sorted),
    Operation("read_log", _each(lambda store, topic: store.read_log(topic, 0, 0, 100)),
              (Kind.STREAM,), looks=True),
    # By hand: each looks first, and changes then.
    Operation("admin.dead_retry", _admin(lambda admin, topic: admin.dead_retry(topic, "g", "all")),
              by_step=True),
    Operation("admin.dead_drop", _admin(lambda admin, topic: admin.dead_drop(topic, "g", "all")),
              by_step=True),
    Operation("admin.drop_group", _admin(lambda admin, topic: admin.drop_group(
        topic, "g", force=True)), by_step=True),
    Operation("admin.seek", _admin(lambda admin, topic: admin.seek(topic, "g", "latest")),
              (Kind.STREAM,), by_step=True),
    Operation("admin.skip", _admin(lambda admin, topic: admin.skip(topic, "g", "a")), by_step=True),
    Operation("admin.unblock", _admin(lambda admin, topic: admin.unblock(topic, "g", "a")),
              by_step=True),
    Operation("admin.pause", _admin(lambda admin, topic: admin.pause(topic, "g")), by_step=True),
    Operation("timers.move", _timers_move, SUBJECTS, by_step=True),
]  # fmt: skip

BY_NAME = {each.name: each for each in OPERATIONS}


def act_of(operation: Operation, scene: Scene, number: int) -> Act:
    """What an actor does, drawn from the scene."""
    draw = random.Random(f"{scene} {operation.name} {number}")
    return operation.drawn(Actor(scene, number, draw))
