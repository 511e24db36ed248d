"""Rosters: who takes part, and which slots are whose, by leases on the store's clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bench import Bench
from rosters import LEASE_MS, NEW, OLD, STEPS, claim, names, owned, roster, start

from qframe.errors import UnknownGroup, UnknownTopic
from qframe.roster import NO_VERSION, Member, Owner, Roster
from qframe.stores.documents import Space, Write
from qframe.topic import Topic

pytestmark = [pytest.mark.promise(4), pytest.mark.written_once]


def test_a_group_that_nobody_has_attended_has_an_empty_roster_of_version_0(bench: Bench) -> None:
    topic = start(bench)
    assert roster(bench, topic) == Roster(0, [], {})
    assert bench.store.roster(topic, "g", 0) is None


def test_who_attends_is_a_member_until_its_lease_passes(bench: Bench) -> None:
    topic = start(bench)
    now_ms = bench.store.now_ms()
    version = bench.store.heartbeat(topic, "g", "a", LEASE_MS)
    assert roster(bench, topic) == Roster(version, [Member("a", now_ms, now_ms + LEASE_MS)], {})
    bench.advance(LEASE_MS - 1)
    assert names(bench, topic) == ["a"]
    bench.advance(1)
    assert names(bench, topic) == []


def test_attending_again_renews_the_lease_and_keeps_when_it_joined_and_what_it_owns(
    bench: Bench,
) -> None:
    topic = start(bench)
    joined_ms = bench.store.now_ms()
    bench.store.heartbeat(topic, "g", "a", LEASE_MS)
    claim(bench, topic, "a", 2)
    for _ in range(5):
        bench.advance(LEASE_MS - 1)
        bench.store.heartbeat(topic, "g", "a", LEASE_MS)
    found = roster(bench, topic)
    assert found.members == [Member("a", joined_ms, bench.store.now_ms() + LEASE_MS)]
    assert found.owners == {2: Owner(2, "a", OLD, joined_ms)}
    bench.store.heartbeat(topic, "g", "a", 10)
    bench.advance(10)
    assert roster(bench, topic).members == []


def test_members_stand_by_when_they_joined_and_then_by_id(bench: Bench) -> None:
    topic = start(bench, "c", "worker 1 (ü)", "a:b/c@d")
    bench.advance(1)
    bench.store.heartbeat(topic, "g", "b", LEASE_MS)
    bench.store.heartbeat(topic, "g", "c", LEASE_MS)
    assert names(bench, topic) == ["a:b/c@d", "c", "worker 1 (ü)", "b"]


def test_a_slot_has_one_owner_and_the_others_are_refused(bench: Bench) -> None:
    topic = start(bench, "a", "b")
    assert claim(bench, topic, "a", 2, 0) == [2, 0]
    bench.advance(5)
    assert claim(bench, topic, "b", 0, 1, 2, 3, under=NEW) == [1, 3]
    now_ms = bench.store.now_ms()
    assert roster(bench, topic).owners == {
        0: Owner(0, "a", OLD, now_ms - 5), 1: Owner(1, "b", NEW, now_ms),
        2: Owner(2, "a", OLD, now_ms - 5), 3: Owner(3, "b", NEW, now_ms),
    }  # fmt: skip
    assert list(roster(bench, topic).owners) == [0, 1, 2, 3]


def test_a_member_that_is_not_there_or_whose_lease_has_passed_gets_nothing(bench: Bench) -> None:
    topic = start(bench, "a")
    assert claim(bench, topic, "stranger", 0, 1) == []
    assert claim(bench, topic, "a", 0) == [0]
    bench.advance(LEASE_MS)
    assert claim(bench, topic, "a", 0, 1) == []
    bench.store.heartbeat(topic, "g", "a", LEASE_MS)
    bench.store.leave(topic, "g", "a")
    assert claim(bench, topic, "a", 0, 1) == []
    assert (names(bench, topic), owned(bench, topic)) == ([], {})


def test_slots_of_a_member_whose_lease_has_passed_are_free_for_the_next_claim(
    bench: Bench,
) -> None:
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0, 1)
    bench.advance(LEASE_MS - 1)
    bench.store.heartbeat(topic, "g", "b", LEASE_MS)
    assert claim(bench, topic, "b", 0, under=NEW) == []
    bench.advance(1)
    assert owned(bench, topic) == {}
    assert claim(bench, topic, "b", 0, under=NEW) == [0]
    assert (names(bench, topic), owned(bench, topic)) == (["b"], {0: "b"})


def test_a_member_lets_go_of_its_own_slots_and_of_no_others(bench: Bench) -> None:
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0, 1)
    claim(bench, topic, "b", 2)
    bench.store.release_slots(topic, "g", "a", [1, 2, 3])
    assert owned(bench, topic) == {0: "a", 2: "b"}
    before = roster(bench, topic)
    bench.store.release_slots(topic, "g", "a", [1, 2, 3])
    bench.store.release_slots(topic, "g", "stranger", [0, 2])
    assert roster(bench, topic) == before
    assert claim(bench, topic, "b", 1) == [1]


def test_a_member_that_retires_keeps_what_it_owns_until_it_lets_go(bench: Bench) -> None:
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0, 1)
    before = roster(bench, topic)
    bench.advance(1)
    bench.store.retire(topic, "g", "a")
    found = roster(bench, topic)
    assert found.version != before.version
    assert [(one.id, one.retiring) for one in found.members] == [("a", True), ("b", False)]
    assert (found.members[0].since_ms, found.owners) == (before.members[0].since_ms, before.owners)
    bench.store.retire(topic, "g", "a")
    assert bench.store.heartbeat(topic, "g", "a", LEASE_MS) == found.version
    assert claim(bench, topic, "b", 0) == []
    bench.store.release_slots(topic, "g", "a", [0])
    assert claim(bench, topic, "b", 0) == [0]
    bench.advance(LEASE_MS)
    bench.store.heartbeat(topic, "g", "a", LEASE_MS)  # it is another life
    assert [(one.id, one.retiring) for one in roster(bench, topic).members] == [("a", False)]


def test_a_member_departs_with_all_it_owns_whoever_asks_and_as_often_as_one_asks(
    bench: Bench,
) -> None:
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0, 1)
    claim(bench, topic, "b", 2)
    bench.store.leave(topic, "g", "a")
    assert (names(bench, topic), owned(bench, topic)) == (["b"], {2: "b"})
    before = roster(bench, topic)
    bench.store.leave(topic, "g", "a")
    bench.store.leave(topic, "g", "stranger")
    assert roster(bench, topic) == before


@pytest.mark.parametrize("name", STEPS)
def test_the_version_is_another_one_exactly_if_something_has_changed(
    bench: Bench, name: str
) -> None:
    step, changes = STEPS[name]
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0, 1)
    before = roster(bench, topic)
    step(bench.store, topic)
    after = roster(bench, topic)
    assert (after.version != before.version) is changes
    stands = [(each.id, each.retiring) for each in after.members]
    assert ((stands, after.owners) != ([("a", False), ("b", False)], before.owners)) is changes
    seen = bench.store.roster(topic, "g", before.version)
    assert seen == (after if changes else None)
    assert bench.store.roster(topic, "g", after.version) is None


@pytest.mark.parametrize(
    "name", [name for name in STEPS if name not in ("looking", "taking the slots themselves")]
)
def test_whoever_drops_a_member_whose_lease_has_passed_gives_the_roster_another_version(
    bench: Bench, name: str
) -> None:
    topic = start(bench, "late")
    bench.advance(1)
    for member in ("a", "b"):
        bench.store.heartbeat(topic, "g", member, LEASE_MS)
    claim(bench, topic, "a", 0, 1)
    before = roster(bench, topic).version
    bench.advance(LEASE_MS - 1)
    STEPS[name][0](bench.store, topic)
    after = roster(bench, topic)
    assert after.version not in (before, NO_VERSION)
    assert "late" not in {each.id for each in after.members}


def test_whoever_looks_notices_that_a_lease_has_passed_also_if_nobody_has_dropped_it(
    bench: Bench,
) -> None:
    topic = start(bench, "a")
    claim(bench, topic, "a", 0)
    bench.advance(1)
    version = bench.store.heartbeat(topic, "g", "b", LEASE_MS)
    bench.advance(LEASE_MS - 2)
    assert bench.store.roster(topic, "g", version) is None
    bench.advance(1)
    for _ in range(2):
        found = bench.store.roster(topic, "g", version)
        assert found is not None
        assert ([each.id for each in found.members], found.owners) == (["b"], {})
        # Of no version: else whoever has seen it would take what is there, should time go back,
        # for what it has seen.
        assert found.version == NO_VERSION
        assert bench.store.roster(topic, "g", NO_VERSION) == found
    version = bench.store.heartbeat(topic, "g", "b", LEASE_MS)
    assert roster(bench, topic).version == version != NO_VERSION


def test_a_version_is_never_given_to_another_state_also_if_a_group_is_dropped(
    bench: Bench,
) -> None:
    topic = start(bench)
    seen = set()
    for number in range(10):
        seen.add(bench.store.heartbeat(topic, "g", "a", LEASE_MS))
        claim(bench, topic, "a", 0)
        seen.add(roster(bench, topic).version)
        assert len(seen) == 2 * number + 2
        bench.store.drop_group(topic, "g")
        bench.store.subscribe(topic, "g")
    assert 0 not in seen


def test_a_dropped_group_forgets_its_roster_and_subscribes_again_with_an_empty_one(
    bench: Bench,
) -> None:
    topic = start(bench, "a")
    bench.store.subscribe(topic, "h")
    bench.store.heartbeat(topic, "h", "a", LEASE_MS)
    claim(bench, topic, "a", 0, 1)
    claim(bench, topic, "a", 1, group="h")
    version = roster(bench, topic).version
    bench.store.drop_group(topic, "g")
    with pytest.raises(UnknownGroup):
        bench.store.roster(topic, "g", version)
    bench.store.subscribe(topic, "g")
    assert bench.store.roster(topic, "g", version) == Roster(0, [], {})
    assert claim(bench, topic, "a", 0) == []
    bench.store.heartbeat(topic, "g", "b", LEASE_MS)
    assert claim(bench, topic, "b", 0, under=NEW) == [0]
    assert owned(bench, topic) == {0: "b"}
    assert (names(bench, topic, "h"), owned(bench, topic, "h")) == (["a"], {1: "a"})


def test_each_group_and_each_topic_has_a_roster_of_its_own(bench: Bench) -> None:
    topic, other = start(bench, "a"), start(bench, "b")
    bench.store.subscribe(topic, "h")
    bench.store.heartbeat(topic, "h", "c", LEASE_MS)
    claim(bench, topic, "a", 0)
    claim(bench, other, "b", 0, under=NEW)
    assert claim(bench, topic, "c", 0, under=NEW, group="h") == [0]
    assert [owned(bench, topic), owned(bench, other), owned(bench, topic, "h")] == [
        {0: "a"}, {0: "b"}, {0: "c"},
    ]  # fmt: skip


OPERATIONS: dict[str, Callable[[Any, Topic], Any]] = {
    "heartbeat": lambda store, topic: store.heartbeat(topic, "g", "a", LEASE_MS),
    "roster": lambda store, topic: store.roster(topic, "g"),
    "roster seen": lambda store, topic: store.roster(topic, "g", 0),
    "claim": lambda store, topic: store.claim(topic, "g", "a", {0: OLD}),
    "claim nothing": lambda store, topic: store.claim(topic, "g", "a", {}),
    "release_slots": lambda store, topic: store.release_slots(topic, "g", "a", [0]),
    "retire": lambda store, topic: store.retire(topic, "g", "a"),
    "leave": lambda store, topic: store.leave(topic, "g", "a"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_group_or_a_topic_that_there_is_not_is_refused(bench: Bench, name: str) -> None:
    topic = bench.topic("stream", "h")
    with pytest.raises(UnknownGroup, match=r"group 'g'.*name one of these: h"):
        OPERATIONS[name](bench.store, topic)
    with pytest.raises(UnknownTopic, match="nobody"):
        OPERATIONS[name](bench.store, Topic("nobody-declared-it"))


def test_fifty_members_share_a_thousand_slots(bench: Bench) -> None:
    topic = start(bench, slots=1024)
    members = [f"worker-{number:02}" for number in range(50)]
    for member in members:
        bench.store.heartbeat(topic, "g", member, LEASE_MS)
    slots = list(range(1024))
    assert claim(bench, topic, members[0], *slots) == slots
    bench.store.release_slots(topic, "g", members[0], slots)
    for number, member in enumerate(members):
        assert claim(bench, topic, member, *slots[number::50], under=NEW) == slots[number::50]
    found = roster(bench, topic)
    assert [each.id for each in found.members] == members
    assert {slot: one.member for slot, one in found.owners.items()} == {
        slot: members[slot % 50] for slot in slots
    }
    bench.advance(LEASE_MS)
    version = bench.store.heartbeat(topic, "g", "last", LEASE_MS)
    assert roster(bench, topic) == Roster(
        version, [Member("last", bench.store.now_ms(), bench.store.now_ms() + LEASE_MS)], {}
    )
    assert claim(bench, topic, "last", *slots) == slots
    bench.store.leave(topic, "g", "last")
    assert owned(bench, topic) == {}


def test_a_heartbeat_whose_lease_passes_on_its_way_owns_nothing_once_it_is_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0, 1)
    claim(bench, topic, "b", 2)
    bench.advance(LEASE_MS - 1)
    bench.store.heartbeat(topic, "g", "b", LEASE_MS)
    before_write(bench, monkeypatch, lambda: bench.advance(1))
    bench.store.heartbeat(topic, "g", "a", LEASE_MS)
    assert (names(bench, topic), owned(bench, topic)) == (["a", "b"], {2: "b"})


def test_a_member_that_is_heard_just_before_it_is_taken_out_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0)
    bench.advance(LEASE_MS - 1)
    bench.store.heartbeat(topic, "g", "b", LEASE_MS)
    bench.advance(1)
    before_write(bench, monkeypatch, lambda: bench.store.heartbeat(topic, "g", "a", LEASE_MS))
    assert claim(bench, topic, "b", 0, under=NEW) == [0]
    assert sorted(names(bench, topic)) == ["a", "b"]
    assert owned(bench, topic) == {0: "b"}


def test_of_two_who_claim_what_both_have_seen_free_one_owns_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = start(bench, "a", "b")
    first: list[int] = []
    before_write(bench, monkeypatch, lambda: first.extend(claim(bench, topic, "a", 0, 1)))
    assert claim(bench, topic, "b", 1, 2, under=NEW) == [2]
    assert (first, owned(bench, topic)) == ([0, 1], {0: "a", 1: "a", 2: "b"})


def test_who_has_left_half_way_and_comes_back_owns_nothing(bench: Bench) -> None:
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0, 1)
    removal = [Write("member/a", None)]
    bench.store.write_documents(topic, "g", Space.ROSTER, removal)  # and then it was killed
    assert owned(bench, topic) == {}
    bench.store.heartbeat(topic, "g", "a", LEASE_MS)
    assert owned(bench, topic) == {}
    assert claim(bench, topic, "b", 0, under=NEW) == [0]
    assert claim(bench, topic, "a", 0, 1) == [1]


def before_write(bench: Bench, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Has something happen once, between what is read next and what is written then."""
    write = bench.store.write_documents

    def acted(*args: Any) -> Any:
        monkeypatch.undo()
        act()
        return write(*args)

    monkeypatch.setattr(bench.store, "write_documents", acted)
