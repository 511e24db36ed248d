"""What the scripts' heads say that they cost, counted by a real server."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any

import pytest
from bench import Bench
from script_heads import head_of, sections, text_of
from servers import RedisServer
from timer_acts import cancel, edit

from qframe.outcomes import Verdict
from qframe.stores.records import ChosenDead, TimerSpan
from qframe.stores.redis import audit
from qframe.stores.redis.store import RedisStore
from qframe.stores.types import Entry, PullRequest, PullTerms
from qframe.topic import Topic

# How a script is called, and what counting itself takes.
AROUND = {"evalsha", "eval", "info"}
READS = {"xrange", "xrevrange"}
MANY = 20


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
    entries = [bench.entry(topic, n, f"{id(options)}-{n}", **options) for n in range(count)]
    for entry in entries:
        entry.mark = entries[0].mark
    return entries


def pull(bench: Bench, topic: Topic, limit: int) -> Callable[[], Any]:
    [epoch] = bench.store.epochs(topic, "g").values()
    return lambda: bench.store.pull(
        topic, "g", [PullRequest(0, epoch, limit)], PullTerms("r", 60_000, 16)
    )


@pytest.mark.parametrize("groups", [("g",), ("g", "h")])
def test_publishing_a_batch_to_a_stream(
    bench: Bench, counted: Count, groups: tuple[str, ...]
) -> None:
    topic = bench.topic("stream", *groups)
    entries = batch(bench, topic)
    assert counted(lambda: bench.store.publish(topic, entries)) == said("publish_stream")[0]


def test_publishing_delayed_messages_to_a_stream(bench: Bench, counted: Count) -> None:
    topic = bench.topic("stream", "g")
    together, each = said("publish_stream")[:2]
    entries = batch(bench, topic) + batch(bench, topic, delay_ms=60_000)
    assert counted(lambda: bench.store.publish(topic, entries)) == together + MANY * each


@pytest.mark.parametrize("kind", ["stream", "delay"])
def test_publishing_to_a_slot_where_somebody_sleeps(
    bench: Bench, counted: Count, kind: str
) -> None:
    topic = bench.topic(kind, "g")
    bench.got(topic)
    name = "publish_stream" if kind == "stream" else "publish_subjects"
    cost = said(name)
    awake = cost[0] if kind == "stream" else cost[0] + cost[1]
    entries = batch(bench, topic)
    assert counted(lambda: bench.store.publish(topic, entries)) == awake + cost[-1]


@pytest.mark.parametrize("kind", ["ordered", "delay", "priority", "merge"])
@pytest.mark.parametrize("groups", [("g",), ("g", "h")])
def test_publishing_new_subjects(
    bench: Bench, counted: Count, kind: str, groups: tuple[str, ...]
) -> None:
    topic = bench.topic(kind, *groups)
    together, each_group = said("publish_subjects")[:2]
    entries = batch(bench, topic)
    spent = counted(lambda: bench.store.publish(topic, entries))
    assert spent == together + len(groups) * each_group


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


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_pulling_subjects(bench: Bench, counted: Count, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.store.publish(topic, batch(bench, topic))
    whole, limited = said("pull")[:2]
    assert counted(pull(bench, topic, MANY // 2)) == limited
    assert counted(pull(bench, topic, MANY)) == whole
    assert counted(pull(bench, topic, MANY)) == limited  # nothing is due


def test_pulling_ordered_subjects(bench: Bench, counted: Count) -> None:
    topic = bench.topic("ordered", "g")
    bench.store.publish(topic, batch(bench, topic, 5))
    whole, _, more, each, _ = said("pull")
    assert counted(pull(bench, topic, MANY)) == whole + more + 5 * each


def test_pulling_from_a_stream(bench: Bench, counted: Count) -> None:
    """The log itself is read beside the script."""
    topic = bench.topic("stream", "g")
    whole, left = said("pull_stream")[:2]
    for _ in range(3):
        bench.store.publish(topic, batch(bench, topic))
    assert counted(pull(bench, topic, MANY), READS) == whole
    assert counted(pull(bench, topic, 10 * MANY), READS) == whole
    assert counted(pull(bench, topic, MANY), READS) == whole  # nothing is there
    bench.publish(topic, "more")
    bench.retry(topic, *bench.got(topic))
    assert whole < counted(pull(bench, topic, MANY), READS) <= whole + left


@pytest.mark.parametrize("kind", ["delay", "priority", "merge"])
def test_acknowledging_subjects(bench: Bench, counted: Count, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.store.publish(topic, batch(bench, topic))
    deliveries = bench.got(topic)
    # One more is what the bench itself asks: the epochs.
    assert counted(lambda: bench.ack(topic, *deliveries)) == said("settle")[0] + 1


def test_acknowledging_ordered_subjects(bench: Bench, counted: Count) -> None:
    topic = bench.topic("ordered", "g")
    bench.store.publish(topic, batch(bench, topic))
    deliveries = bench.got(topic)
    _, _, together, least, most, *_ = said("settle")
    spent = counted(lambda: bench.ack(topic, *deliveries)) - 1
    assert together + MANY * least <= spent <= together + MANY * most


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.DEAD, Verdict.RELEASE])
def test_ending_subjects_otherwise(bench: Bench, counted: Count, verdict: Verdict) -> None:
    topic = bench.topic("delay", "g")
    bench.store.publish(topic, batch(bench, topic))
    deliveries = bench.got(topic)
    *_, least, most, _ = said("settle")
    spent = counted(lambda: bench.settle(topic, verdict, *deliveries)) - 1
    assert MANY * least < spent <= MANY * most + said("settle")[0]


def test_acknowledging_a_streams_line(bench: Bench, counted: Count) -> None:
    topic = bench.topic("stream", "g")
    bench.store.publish(topic, batch(bench, topic))
    deliveries, epochs = bench.got(topic), bench.store.epochs(topic, "g")
    for part in (deliveries[::2], deliveries[1::2]):
        spent = counted(lambda p=part: bench.store.acknowledge(topic, "g", p, epochs))  # type: ignore[misc]
        assert spent == said("settle_stream")[0]


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.DEAD, Verdict.RELEASE])
def test_ending_a_streams_messages_otherwise(
    bench: Bench, counted: Count, verdict: Verdict
) -> None:
    topic = bench.topic("stream", "g")
    bench.store.publish(topic, batch(bench, topic))
    deliveries = bench.got(topic)
    once, for_entry, least, most, _ = said("end_stream")
    spent = counted(lambda: bench.settle(topic, verdict, *deliveries)) - 1
    assert once + for_entry + MANY * least <= spent <= once + for_entry + MANY * most


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_renewing(bench: Bench, counted: Count, kind: str) -> None:
    topic = bench.topic(kind, "g")
    bench.store.publish(topic, batch(bench, topic))
    holds = bench.holds(topic, *bench.got(topic))
    if kind == "stream":
        holds = holds[:1]  # one stands for the window
    assert counted(lambda: bench.store.renew(topic, "g", holds, 60_000)) == said("renew")[0]


@pytest.mark.parametrize("kind", ["stream", "ordered", "delay"])
def test_taking_slots(bench: Bench, counted: Count, kind: str) -> None:
    topic = bench.topic(kind, "g")
    free, stream, least, most, *window = said("take")
    looking = 1  # how far the topic has grown
    base = looking + (stream if kind == "stream" else free)
    assert counted(lambda: bench.take(topic)) == base
    bench.store.publish(topic, batch(bench, topic))
    bench.got(topic)
    spent = counted(lambda: bench.take(topic)) - base
    if kind == "stream":
        assert spent == window[0] + MANY * window[1]
    else:
        assert MANY * least <= spent <= MANY * most


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("stats", lambda bench, topic: bench.store.stats(topic, "g")),
        ("drop_group", lambda bench, topic: bench.store.drop_group(topic, "h")),
    ],
)
def test_what_is_rarer(
    bench: Bench, counted: Count, name: str, step: Callable[[Bench, Topic], Any]
) -> None:
    topic = bench.topic("delay", "g", "h")
    bench.store.publish(topic, batch(bench, topic))
    cost = said(name)
    spent = counted(lambda: step(bench, topic))
    assert spent == cost[0] if name != "stats" else cost[0] <= spent <= cost[1]


def test_editing_and_cancelling(bench: Bench, counted: Count) -> None:
    topic = bench.topic("delay", "g", "h")
    bench.publish(topic, 1, "k", delay_ms=60_000)
    store = bench.store
    for name, step in (
        ("edit", lambda: edit(store, topic, "k", due_ms=2**42)),
        ("edit", lambda: edit(store, topic, "k", body=b"2")),
        ("cancel", lambda: cancel(store, topic, "k")),
    ):
        once, least, most, *_ = said(name)
        spent = counted(step)
        assert once + 2 * least <= spent <= once + 2 * most, name


def test_seeking_and_subscribing(bench: Bench, counted: Count) -> None:
    stream, delay = bench.topic("stream", "g"), bench.topic("delay", "g")
    bench.publish(stream, 1)
    assert counted(lambda: bench.store.seek(stream, "g", {0: 0})) == said("seek")[0]
    once, in_stream, elsewhere, expires, *_, known, expires_again = said("subscribe")
    assert counted(lambda: bench.store.subscribe(stream, "new")) == once + in_stream
    assert counted(lambda: bench.store.subscribe(delay, "new")) == once + elsewhere
    for topic, cost in ((stream, once + in_stream), (delay, once + elsewhere)):
        brief = lambda t=topic: bench.store.subscribe(t, "brief", expires_ms=60_000)  # noqa: E731
        assert counted(brief) == cost + expires
        assert counted(brief) == once + expires_again
        assert counted(lambda t=topic: bench.store.subscribe(t, "new")) == once + known  # type: ignore[misc]


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
            topic = bench.topic(kind, "g", history=history)
            bench.store.publish(topic, batch(bench, topic))
            deliveries = bench.got(topic)
            spent[history, verdict] = counted(
                lambda t=topic, v=verdict, d=deliveries: bench.settle(t, v, *d)  # type: ignore[misc]
            )
    more = {verdict: spent["1d", verdict] - spent[None, verdict] for _, verdict in spent}
    assert more[Verdict.RETRY] == said("settle" if kind != "stream" else "end_stream")[-1] == 3
    together = said("settle_stream") if kind == "stream" else [0, *said("settle")[-1:]]
    assert more[Verdict.ACK] == sum(together[1:])


def roster_of(bench: Bench, *members: str) -> Topic:
    """A topic whose roster has these members."""
    topic = bench.topic("stream", "g", slots=64)
    for member in members:
        bench.store.heartbeat(topic, "g", member, 60_000)
    return topic


def test_attending(bench: Bench, counted: Count) -> None:
    topic = roster_of(bench)
    renewing, joining, first, passed, owning, alone = said("heartbeat")
    heartbeat = bench.store.heartbeat
    spent = counted(lambda: heartbeat(topic, "g", "a", 60_000))
    assert spent == renewing + joining + first
    assert counted(lambda: heartbeat(topic, "g", "b", 60_000)) == renewing + joining
    assert counted(lambda: heartbeat(topic, "g", "a", 60_000)) == renewing
    bench.store.claim(topic, "g", "a", {0: "0" * 16})
    heartbeat(topic, "g", "a", 0)
    assert counted(lambda: heartbeat(topic, "g", "b", 60_000)) == renewing + passed + owning + alone
    heartbeat(topic, "g", "b", 0)
    assert counted(lambda: heartbeat(topic, "g", "c", 60_000)) == renewing + joining + passed


def test_looking_at_a_roster(bench: Bench, counted: Count) -> None:
    topic = roster_of(bench)
    same, other, passed, nobody = said("roster")
    assert counted(lambda: bench.store.roster(topic, "g", 0)) == same + nobody
    assert counted(lambda: bench.store.roster(topic, "g")) == other + nobody
    version = bench.store.heartbeat(topic, "g", "a", 60_000)
    assert counted(lambda: bench.store.roster(topic, "g", version)) == same == 3
    assert counted(lambda: bench.store.roster(topic, "g", version + 1)) == other
    bench.store.heartbeat(topic, "g", "a", 0)
    assert counted(lambda: bench.store.roster(topic, "g", version)) == passed


def test_claiming_and_letting_go(bench: Bench, counted: Count) -> None:
    topic = roster_of(bench, "a", "b")
    stranger, looking, more, *_ = said("claim")
    epochs = dict.fromkeys(range(64), "0" * 16)
    for member, cost in (
        ("c", stranger), ("a", looking + more), ("a", looking), ("b", looking),
    ):  # fmt: skip
        assert counted(lambda m=member: bench.store.claim(topic, "g", m, epochs)) == cost  # type: ignore[misc]
    looking, more, *_ = said("release_slots")
    for member, cost in (("b", looking), ("a", looking + more), ("a", looking)):
        assert counted(lambda m=member: bench.store.release_slots(topic, "g", m, range(64))) == cost  # type: ignore[misc]


def test_claiming_very_many_slots(bench: Bench, counted: Count) -> None:
    topic = roster_of(bench, "a")
    _, looking, more, _, each, step = said("claim")
    epochs = dict.fromkeys(range(2048), "0" * 16)
    spent = counted(lambda: bench.store.claim(topic, "g", "a", epochs))
    assert spent == looking + more + 2047 // each + 2047 // step
    looking, more, _, each, step = said("release_slots")
    spent = counted(lambda: bench.store.release_slots(topic, "g", "a", range(2048)))
    assert spent == looking + more + 2047 // each + 2047 // step


def test_retiring(bench: Bench, counted: Count) -> None:
    topic = roster_of(bench, "a", "b")
    looking, more = said("retire")
    for name, cost in (("c", looking), ("a", looking + more), ("a", looking)):
        assert counted(lambda n=name: bench.store.retire(topic, "g", n)) == cost  # type: ignore[misc]


def test_departing(bench: Bench, counted: Count) -> None:
    topic = roster_of(bench, "a", "b")
    bench.store.claim(topic, "g", "a", dict.fromkeys(range(64), "0" * 16))
    stranger, member, owning, _ = said("leave")
    for name, cost in (("c", stranger), ("b", member), ("a", member + owning), ("a", stranger)):
        assert counted(lambda n=name: bench.store.leave(topic, "g", n)) == cost  # type: ignore[misc]


def test_dropping_a_group_that_somebody_has_attended(bench: Bench, counted: Count) -> None:
    topic = bench.topic("stream", "g", "h")
    bench.store.heartbeat(topic, "g", "a", 60_000)
    _, once, *_, more, _ = said("drop_group")
    assert counted(lambda: bench.store.drop_group(topic, "g")) == once + more


def test_tuning(bench: Bench, counted: Count) -> None:
    topic = bench.topic("stream", "g", slots=4)
    alone, each = said("tune")
    values = {"threads": "4", "rate": "5/s", "paused": None}
    assert counted(lambda: bench.store.tune(topic, "g", values)) == alone + 3 * each
    assert counted(lambda: bench.store.tunings([(topic, "g")] * 3)) == 3


def test_drawing_tokens(bench: Bench, counted: Count) -> None:
    topic = bench.topic("stream", "g", slots=4)
    granted, refused, first = said("draw")

    def draw(tokens: int) -> None:
        bench.store.draw(topic, "g", tokens, rate=1, per_ms=86_400_000, burst=5)

    assert counted(lambda: draw(2)) == granted + first
    assert counted(lambda: draw(4)) == granted
    assert counted(lambda: draw(1)) == refused


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
