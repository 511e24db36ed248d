"""What the scripts' heads say that they cost, counted by a real server."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple

import pytest
from bench import Bench
from script_heads import head_of, sections, text_of
from servers import RedisServer

from qframe.outcomes import Verdict
from qframe.stores.documents import NO_VERSION, Place, Space, Span, Write
from qframe.stores.edits import Becomes, Edit
from qframe.stores.records import ChosenDead, TimerSpan
from qframe.stores.redis import audit
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import Entry, PullRequest, PullTerms
from qframe.topic import Topic

# How a script is called, and what counting itself takes.
AROUND = {"evalsha", "eval", "info"}
READS = {"xrange", "xrevrange"}
MANY = 20
PREFIXES = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One that nobody else gives work to."""
    with RedisServer(tmp_path_factory.mktemp("costs")) as server:
        yield server


@pytest.fixture
def bench(server: RedisServer, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A store that goes by its server's clock, as it does where it serves."""

    def opened(namespace: str) -> RedisStore:
        return RedisStore(server.url, namespace=f"{namespace}-{id(request)}")

    bench = Bench(opened, lambda ms: None, "topic")
    yield bench
    bench.check()
    bench.close()


@pytest.fixture
def counted(server: RedisServer) -> Iterator[Callable[..., int]]:
    """Counts the commands that a step runs, but those that it is said to run beside its scripts."""
    with server.client() as client:

        def calls(beside: set[str]) -> int:
            stats = client.info("commandstats")
            return sum(
                one["calls"]
                for name, one in stats.items()
                if name.removeprefix("cmdstat_") not in AROUND | beside
            )

        def count(step: Callable[[], Any], beside: Iterable[str] = ()) -> int:
            before = calls(set(beside))
            step()
            return calls(set(beside)) - before

        yield count


Count = Callable[..., int]


def said(name: str) -> list[int]:
    """The numbers of a head's cost line, in order."""
    [cost] = [part for part in sections(head_of(text_of(name))) if part.startswith("Cost: ")]
    return [int(number) for number in re.findall(r"\d+", cost)]


def batch(bench: Bench, topic: Topic, count: int = MANY, **options: Any) -> list[Entry]:
    """Messages of keys that are all new, under one mark."""
    prefix = next(PREFIXES)
    entries = [bench.entry(topic, n, f"{prefix}-{n}", **options) for n in range(count)]
    for entry in entries:
        entry.mark = entries[0].mark
    return entries


def pull(bench: Bench, topic: Topic, limit: int) -> Callable[[], Any]:
    [epoch] = bench.store.epochs(topic, "g").values()
    return lambda: bench.store.pull(
        topic, "g", [PullRequest(0, epoch, limit)], PullTerms("r", 60_000, 16)
    )


def check(counted: Count, name: str, *steps: tuple[Sequence[int], Callable[[], Any]]) -> None:
    """Each step costs the sum of the numbers of a head that are at these places."""
    numbers = said(name)
    for place, (terms, step) in enumerate(steps):
        assert counted(step) == sum(numbers[term] for term in terms), (name, place)


def filled(bench: Bench, kind: str, *groups: str, **options: Any) -> Topic:
    """A topic with a batch of messages."""
    topic = bench.topic(kind, "g", *groups, **options)
    bench.store.publish(topic, batch(bench, topic))
    return topic


@pytest.mark.parametrize("groups", [("g",), ("g", "h")])
@pytest.mark.parametrize("kind", ["stream", "ordered", "delay", "priority", "merge"])
def test_publishing(bench: Bench, counted: Count, kind: str, groups: tuple[str, ...]) -> None:
    topic = bench.topic(kind, *groups)
    name = "publish_stream" if kind == "stream" else "publish_subjects"
    new = [0] if kind == "stream" else [0, *[1 for _ in groups]]
    fresh = batch(bench, topic), batch(bench, topic)
    bench.got(topic)  # it sleeps from now on
    check(
        counted, name, ([*new, -1], lambda: bench.store.publish(topic, fresh[0])),
        (new, lambda: bench.store.publish(topic, fresh[1])),
    )  # fmt: skip
    if kind == "stream":
        delayed = batch(bench, topic) + batch(bench, topic, delay_ms=60_000)
        check(counted, name, ([0, *[1] * MANY], lambda: bench.store.publish(topic, delayed)))


def test_publishing_equal_subjects(bench: Bench, counted: Count) -> None:
    cost = said("publish_subjects")
    for kind in ("ordered", "delay", "priority", "merge"):
        topic = bench.topic(kind, "g")
        for _ in range(4):
            entry = bench.entry(topic, 1, "k")
            spent = counted(lambda t=topic, e=entry: bench.store.publish(t, [e]))  # type: ignore[misc]
            # Of what each group costs, an equal subject spares the rows of a new one.
            assert spent <= cost[0] + cost[1] + cost[3]
            bench.got(topic)


@pytest.mark.parametrize("kind", ["ordered", "delay", "priority", "merge"])
def test_pulling_and_acknowledging_subjects(bench: Bench, counted: Count, kind: str) -> None:
    topic = filled(bench, kind)
    # One more is what the bench itself asks: the epochs.
    if kind == "ordered":
        check(counted, "pull", ([0, 2, *[3] * MANY, 4], pull(bench, topic, 2 * MANY)))
        topic = filled(bench, kind)
        deliveries = bench.got(topic)
        _, _, together, least, most, *_ = said("settle")
        spent = counted(lambda: bench.ack(topic, *deliveries)) - 1
        assert together + MANY * least <= spent <= together + MANY * most
        return
    half, all_, none = [pull(bench, topic, limit) for limit in (MANY // 2, MANY, MANY)]
    check(counted, "pull", ([1], half), ([0], all_), ([1], none))
    topic = filled(bench, kind)
    deliveries = bench.got(topic)
    assert counted(lambda: bench.ack(topic, *deliveries)) == said("settle")[0] + 1


def test_pulling_from_a_stream(bench: Bench, counted: Count) -> None:
    """The log itself is read beside the script."""
    topic = bench.topic("stream", "g")
    whole, left = said("pull_stream")[:2]
    for _ in range(3):
        bench.store.publish(topic, batch(bench, topic))
    for limit in (MANY, 10 * MANY, MANY):  # at last nothing is there
        assert counted(pull(bench, topic, limit), READS) == whole
    bench.publish(topic, "more")
    bench.retry(topic, *bench.got(topic))
    assert whole < counted(pull(bench, topic, MANY), READS) <= whole + left


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.DEAD, Verdict.RELEASE])
def test_ending_otherwise(bench: Bench, counted: Count, verdict: Verdict) -> None:
    *_, least, most, _ = said("settle")
    once, for_entry, least_of_stream, most_of_stream, _ = said("end_stream")
    for kind, above, below in (
        ("delay", MANY * least + 1, MANY * most + said("settle")[0]),
        ("stream", once + for_entry + MANY * least_of_stream,
         once + for_entry + MANY * most_of_stream),
    ):  # fmt: skip
        topic = filled(bench, kind)
        deliveries = bench.got(topic)
        spent = counted(lambda t=topic, d=deliveries: bench.settle(t, verdict, *d)) - 1  # type: ignore[misc]
        assert above <= spent <= below, kind


def test_acknowledging_a_streams_line(bench: Bench, counted: Count) -> None:
    topic = filled(bench, "stream")
    deliveries, epochs = bench.got(topic), bench.store.epochs(topic, "g")
    for part in (deliveries[::2], deliveries[1::2]):
        acknowledge = partial(bench.store.acknowledge, topic, "g", part, epochs)
        check(counted, "settle_stream", ([0], acknowledge))


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_renewing_and_taking_slots(bench: Bench, counted: Count, kind: str) -> None:
    topic = bench.topic(kind, "g")
    free, stream, least, most, *window = said("take")
    looking = 1  # how far the topic has grown
    base = looking + (stream if kind == "stream" else free)
    assert counted(lambda: bench.take(topic)) == base
    bench.store.publish(topic, batch(bench, topic))
    holds = bench.holds(topic, *bench.got(topic))
    if kind == "stream":
        holds = holds[:1]  # one stands for the window
    check(counted, "renew", ([0], lambda: bench.store.renew(topic, "g", holds, 60_000)))
    spent = counted(lambda: bench.take(topic)) - base
    if kind == "stream":
        assert spent == window[0] + MANY * window[1]
    else:
        assert MANY * least <= spent <= MANY * most


@pytest.mark.parametrize("kind", ["stream", "delay", "ordered"])
def test_edits(bench: Bench, counted: Count, kind: str) -> None:
    topic = bench.topic(kind, "g")
    for key in ("first", "second"):
        bench.publish(topic, key, key)
    bench.kill(topic, *bench.got(topic))
    store = bench.store
    [first, second] = store.dead(topic, "g")
    retried = Edit(Becomes.RETRIED, group="g", slot=0, seq=first.seq)
    dropped = Edit(Becomes.DROPPED, group="g", slot=0, seq=second.seq)
    once, of_all, of_one, of_head, least, most, *_ = said("rewrite")
    for edit in (retried, dropped):
        spent = counted(partial(store.rewrite, topic, [edit]))
        assert once + of_one + least <= spent <= once + of_one + most, edit
    [one] = bench.got(topic)
    bench.retry(topic, one, delay_ms=60_000)
    [head] = store.peek(topic, "g", states=["waiting"])
    edits = [
        Edit(Becomes.EDITED, head.subject or "", due_ms=2**42),
        Edit(Becomes.EDITED, head.subject or "", body=b"2"),
        Edit(Becomes.DUE, head.subject or "", "g", 0),
        Edit(Becomes.DEAD, head.subject or "", "g", 0, error="given up"),
    ]
    for edit in edits:
        group = of_all if edit.group is None else of_one
        spent = counted(partial(store.rewrite, topic, [edit]))
        assert once + group + of_head + least <= spent <= once + group + of_head + most, edit


def test_groups(bench: Bench, counted: Count) -> None:
    store, stream, delay = bench.store, bench.topic("stream", "g"), bench.topic("delay", "g")
    bench.publish(stream, 1)
    check(counted, "seek", ([0], lambda: store.seek(stream, "g", {0: 0})))
    for topic, made in ((stream, 1), (delay, 2)):
        new = partial(store.subscribe, topic, "new")
        brief = partial(store.subscribe, topic, "brief", expires_ms=60_000)
        check(
            counted, "subscribe", ([0, made], new), ([0, made, 3], brief), ([0, -1], brief),
            ([0, -2], new),
        )  # fmt: skip
    least, most = said("stats")[:2]
    assert least <= counted(lambda: store.stats(delay, "g")) <= most
    check(counted, "drop_group", ([0], lambda: store.drop_group(delay, "new")))
    store.heartbeat(stream, "new", "a", 60_000)
    check(counted, "drop_group", ([1, -2], lambda: store.drop_group(stream, "new")))


def test_sweeping_a_group_that_has_expired(bench: Bench, counted: Count) -> None:
    topic = bench.topic("delay", "g")
    bench.store.subscribe(topic, "brief", expires_ms=0)
    dropping, (sweeping, each, *_) = said("drop_group")[0], said("sweep")
    declared = 1  # it goes by the topic's options as they are in the store
    dropping -= 1  # it has looked before whether the slot is closed
    spent = counted(lambda: bench.store.sweep(topic))
    assert spent == declared + sweeping + each + dropping
    assert counted(lambda: bench.store.sweep(topic)) == declared + sweeping + each
    assert bench.store.groups(topic) == ["g"]


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_a_history(bench: Bench, counted: Count, kind: str) -> None:
    """Three commands for any number of messages that are settled together, and none without it."""
    spent = {}
    for history in (None, "1d"):
        for verdict in (Verdict.RETRY, Verdict.ACK):
            topic = filled(bench, kind, history=history)
            deliveries = bench.got(topic)
            spent[history, verdict] = counted(
                lambda t=topic, v=verdict, d=deliveries: bench.settle(t, v, *d)  # type: ignore[misc]
            )
    more = {verdict: spent["1d", verdict] - spent[None, verdict] for _, verdict in spent}
    assert more[Verdict.RETRY] == said("settle" if kind != "stream" else "end_stream")[-1] == 3
    together = said("settle_stream") if kind == "stream" else [0, *said("settle")[-1:]]
    assert more[Verdict.ACK] == sum(together[1:])


def test_documents(bench: Bench, counted: Count) -> None:
    store, topic = bench.store, bench.topic("stream", "g")
    look = partial(store.list_documents, topic, "g", Space.TUNING)
    part = partial(look, Span(limit=5))

    def write(name: str, *rest: Any) -> Callable[[], object]:
        return partial(store.write_documents, topic, "g", Space.TUNING, [Write(name, *rest)])

    check(counted, "list_documents", ([0], look), ([0], part))
    check(
        counted, "write_documents", ([0], write("a", "1", 7)),
        ([0], write("a", None, 7)), ([0, 1, 3, 5], write("a", "1", NO_VERSION)),
        ([0, 1], write("a", "1")), ([0, 1, 5], write("a", "2")),
        ([0, 1, 3, 4], write("a", "2", None, 9)), ([0], write("a", "3", NO_VERSION)),
        ([0], write("a", None, NO_VERSION)), ([0, 2, 4, 5], write("a", None)),
        ([0], write("a", None)), ([0], write("a", None, NO_VERSION)),
    )  # fmt: skip
    many = [Write(f"{number}", "x") for number in range(MANY)]
    write_many = partial(store.write_documents, topic, "g", Space.TUNING, many)
    check(counted, "write_documents", ([0, 1, 3, 5], write_many), ([0, 1], write_many))
    check(counted, "list_documents", ([0], look), ([0, 1], part))
    places = [Place(topic, "g", Space.TUNING, f"{number}") for number in range(MANY)]
    assert counted(lambda: store.read_documents(places)) == MANY


class Writing(NamedTuple):
    """The commands of a write of one document."""

    nothing: int
    same: int
    other: int
    new: int
    gone: int


def writing() -> Writing:
    nothing, put, taken, ranked, unranked, other, _ = said("write_documents")
    same = nothing + put
    return Writing(
        nothing, same, same + other, same + other + ranked, nothing + taken + unranked + other
    )


def test_rosters(bench: Bench, counted: Count) -> None:
    """A look at all documents, and a write where there is something to say."""
    store, topic = bench.store, bench.topic("stream", "g", slots=2048)
    look, write, slots = said("list_documents")[0], writing(), range(2048)
    epochs = dict.fromkeys(slots, "0" * 16)
    versions: list[int] = []

    def spent(name: str, *given: Any) -> int:
        act = getattr(store, name)
        return counted(lambda: versions.append(act(topic, "g", *given)))

    for member in "ab":
        assert spent("heartbeat", member, 60_000) == look + write.new
        assert spent("heartbeat", member, 60_000) == look + write.same
    assert spent("roster") == spent("roster", versions[-1]) == look
    assert spent("claim", "c", epochs) == look
    assert spent("claim", "a", epochs) == look + write.new
    assert spent("claim", "a", epochs) == spent("claim", "b", epochs) == look
    assert spent("release_slots", "b", slots) == look
    assert spent("release_slots", "a", slots) == look + write.other
    assert spent("release_slots", "a", slots) == look
    assert spent("retire", "c") == look
    assert spent("retire", "a") == look + write.other
    assert spent("retire", "a") == look
    store.claim(topic, "g", "b", epochs)
    assert spent("leave", "c") == write.nothing + look
    assert spent("leave", "a") == write.gone + look
    assert spent("leave", "b") == write.gone + look + write.other + look
    assert spent("leave", "b") == write.nothing + look
    # Leases that have passed: their owners go, and each of them; then it is looked at anew.
    for member in "ab":
        store.heartbeat(topic, "g", member, 60_000)
    store.claim(topic, "g", "a", {0: "0" * 16})
    store.heartbeat(topic, "g", "a", 0)
    assert spent("roster") == look
    assert spent("heartbeat", "b", 60_000) == 2 * look + write.other + write.gone + write.same
    store.heartbeat(topic, "g", "b", 0)
    assert spent("heartbeat", "c", 60_000) == 2 * look + write.gone + write.new


def test_tuning_reporting_and_drawing_tokens(bench: Bench, counted: Count) -> None:
    topic = bench.topic("stream", "g", slots=4)
    look, write = said("list_documents")[0], writing()
    values = {"threads": "4", "rate": "5/s", "paused": None}
    tune = partial(bench.store.tune, topic, "g", values)
    assert counted(tune) == look + write.new
    assert counted(tune) == look + write.same
    assert counted(lambda: bench.store.tunings([(topic, "g")] * 3)) == 3
    report = partial(bench.store.report, topic, "g", "w")
    assert counted(lambda: report("well")) == write.new + look
    assert counted(lambda: report("ill")) == write.other
    assert counted(lambda: bench.store.reports(topic, "g")) == look
    draw = partial(bench.store.draw, topic, "g", rate=1, per_ms=86_400_000, burst=5)
    check(
        counted,
        "draw",
        ([0, 2], partial(draw, 2)),
        ([0], partial(draw, 4)),
        ([1], partial(draw, 1)),
    )


def sent(server: RedisServer, step: Callable[[], Any]) -> int:
    """How many bytes the server sends for a step."""
    with server.client() as client:
        before = client.info("stats")["total_net_output_bytes"]
        step()
        after: int = client.info("stats")["total_net_output_bytes"]
        return after - before


def test_a_page_of_timers_costs_what_it_shows_though_thousands_are_due_at_its_moment(
    bench: Bench, server: RedisServer
) -> None:
    topic = bench.topic("delay", "g", slots=2)
    at_ms = bench.store.now_ms() + 600_000
    entries = [bench.entry(topic, "x" * 100, f"k{n}", at_ms=at_ms) for n in range(4000)]
    bench.store.publish(topic, entries)
    span = TimerSpan(limit=10)
    first = bench.store.timers(topic, span)
    assert len(first) == 10
    assert sent(server, lambda: bench.store.timers(topic, span)) < 30_000
    behind = span._replace(after=first[-1].timer_place)
    assert sent(server, lambda: bench.store.timers(topic, behind)) < 30_000


def test_a_page_of_dead_letters_does_not_read_a_page_of_each_slot(
    bench: Bench, server: RedisServer
) -> None:
    topic = bench.topic("delay", "g", slots=32)
    bench.store.publish(topic, [bench.entry(topic, n, f"k{n}") for n in range(3200)])
    while letters := bench.got(topic, limit=3200):
        bench.kill(topic, *letters)
    assert len(bench.store.dead(topic, "g", ChosenDead(limit=100))) == 100
    assert sent(server, lambda: bench.store.dead(topic, "g", ChosenDead(limit=100))) < 70_000


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_an_audit_holds_no_more_than_a_page_of_bodies_and_errors(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(audit, "PAGE", 10)
    topic, long = bench.topic(kind, "g"), "x" * 10_000
    keys = map(str, count())

    def publish(**options: Any) -> None:
        for key in islice(keys, 100):
            bench.publish(topic, long, key, **options)

    publish()
    bench.kill(topic, *bench.got(topic), error=long)
    publish()
    bench.retry(topic, *bench.got(topic), error=long, delay_ms=3_600_000)
    publish(delay_ms=3_600_000)
    bench.store.verify(topic)
    tracemalloc.start()
    try:
        assert bench.store.verify(topic) == []
        assert tracemalloc.get_traced_memory()[1] < 800_000
    finally:
        tracemalloc.stop()
