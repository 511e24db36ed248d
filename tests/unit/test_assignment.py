"""Which member gets which slot."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qframe.coordination.assignment import assign

pytestmark = pytest.mark.promise(4)

MEMBERS = [f"host-{number}-abc" for number in range(12)]
NUMBERS = st.lists(st.integers(0, 8191), min_size=1, max_size=64, unique=True).map(sorted)
SLOTS = st.one_of(st.integers(1, 64).map(lambda count: list(range(count))), NUMBERS)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[int], list[str], dict[int, str]]:
    """Numbers of slots, living members, and who owned what before, dead members among them."""
    slots = draw(SLOTS)
    members = draw(st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True))
    before = draw(st.dictionaries(st.sampled_from(slots), st.sampled_from([*MEMBERS, "gone"])))
    return slots, members, before


@given(situations(), st.randoms(use_true_random=False))
def test_slots_are_shared_evenly_with_as_few_moves_as_can_be_and_alike_whoever_asks(
    situation: tuple[list[int], list[str], dict[int, str]], random: Random
) -> None:
    slots, members, before = situation
    assignment = assign(slots, members, before, "t/g")
    assert set(assignment) == set(slots)
    assert set(assignment.values()) <= set(members)
    counts = [Counter(assignment.values())[member] for member in members]
    assert max(counts) - min(counts) <= 1
    held = sorted((Counter(before.values())[member] for member in members), reverse=True)
    least, odd = divmod(len(slots), len(members))
    stays = sum(min(count, least + (place < odd)) for place, count in enumerate(held))
    assert sum(before.get(slot) == assignment[slot] for slot in assignment) == stays
    random.shuffle(members)
    assert assign(slots, members, before, "t/g") == assignment


@given(situations(), st.data())
def test_whoever_computes_it_half_way_through_the_handing_over_finds_the_same(
    situation: tuple[list[int], list[str], dict[int, str]], data: st.DataObject
) -> None:
    """Slots that have been let go, or taken by whom they are meant for, change nothing."""
    slots, members, before = situation
    target = assign(slots, members, before)
    now = dict(before)
    for slot in data.draw(st.lists(st.sampled_from(slots), unique=True)):
        if before.get(slot) != target[slot]:
            now[slot] = target[slot]
    assert assign(slots, members, now) == target


def test_the_odd_slots_of_many_topics_are_not_all_one_members() -> None:
    owners = Counter(assign([0], MEMBERS[:4], {}, f"topic-{n}/g")[0] for n in range(400))
    assert len(owners) == 4
    assert min(owners.values()) > 50


def test_who_has_too_many_gives_up_its_last_slots() -> None:
    assert assign(range(4), ["a", "b"], dict.fromkeys(range(4), "a")) == {
        0: "a", 1: "a", 2: "b", 3: "b",
    }  # fmt: skip


def test_without_members_nobody_owns_anything() -> None:
    assert assign(range(4), [], {0: "a"}) == {}


GROWING = [
    [(0, 1, 2, 3), (1, 2, 3), (1, 2, 3, 4, 8)],  # slot 0 is in use, closing, split
    [(1, 2, 3, 4, 8), (2, 3, 4, 8), (2, 3, 4, 5, 8, 9)],
]


@pytest.mark.parametrize("steps", GROWING)
@given(members=st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True))
def test_a_slot_that_is_split_moves_no_more_than_itself(
    steps: list[tuple[int, ...]], members: list[str]
) -> None:
    """But for what keeps the shares even: the two that follow may go to two members."""
    before, closing, split = steps
    owners = assign(before, members, {})
    meanwhile = assign(closing, members, owners)
    moved = [slot for slot in closing if meanwhile[slot] != owners[slot]]
    assert len(moved) <= 1
    after = assign(split, members, meanwhile)
    assert [slot for slot in closing if after[slot] != meanwhile[slot]] == []
    assert assign(before, members, {slot: owners[slot] for slot in closing}) == owners
