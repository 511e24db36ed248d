"""A roster's bell rings when members or owners have changed, where the store can tell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from bench import Bench
from eventually import eventually
from rosters import LEASE_MS, NEW, STEPS, claim, start

from qframe.stores.bell import Bell
from qframe.topic import Topic

pytestmark = pytest.mark.written_once

LONG_S = 60.0


def silent(bench: Bench, topic: Topic) -> Bell | None:
    """A roster's bell that has told of all that was before; None where there is none."""
    bell: Bell | None = bench.store.roster_bell(topic, "g")
    if bell is not None:
        bench.hear_out(bell)
    return bell


def test_a_store_that_rings_for_messages_rings_for_rosters(bench: Bench) -> None:
    bell = silent(bench, start(bench))
    assert (bell is not None) == bench.store.capabilities.bell
    if bell is not None:
        bell.close()


RINGING: dict[str, Callable[[Any, Topic], Any]] = {
    "joining": lambda s, t: s.heartbeat(t, "g", "c", LEASE_MS),
    "claiming": lambda s, t: s.claim(t, "g", "b", {2: NEW}),
    "letting go": lambda s, t: s.release_slots(t, "g", "a", [1, 2]),
    "departing": lambda s, t: s.leave(t, "g", "a"),
    "dropping the group": lambda s, t: s.drop_group(t, "g"),
}


@pytest.mark.parametrize("name", RINGING)
def test_the_bell_rings_for_all_who_listen_when_the_roster_changes(bench: Bench, name: str) -> None:
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0, 1)
    for bell in [silent(bench, topic), silent(bench, topic)]:
        if bell is None:
            return
        answers: list[bool] = []
        waiting = threading.Thread(target=lambda b=bell, a=answers: a.append(b.wait(LONG_S)))
        waiting.start()
        RINGING[name](bench.store, topic)
        assert eventually(lambda a=answers: a) == [True]
        waiting.join()
        bell.close()
        bench.store.subscribe(topic, "g")
        for member in ("a", "b"):
            bench.store.heartbeat(topic, "g", member, LEASE_MS)
        bench.store.leave(topic, "g", "c")
        bench.store.release_slots(topic, "g", "b", [2])
        claim(bench, topic, "a", 0, 1)


def test_the_bell_rings_when_another_who_only_renews_finds_that_a_lease_has_passed(
    bench: Bench,
) -> None:
    topic = start(bench, "a")
    bench.advance(1)
    bench.store.heartbeat(topic, "g", "b", LEASE_MS)
    bell = silent(bench, topic)
    if bell is None:
        return
    bench.advance(LEASE_MS - 1)
    assert not bell.wait(0)
    bench.store.heartbeat(topic, "g", "b", LEASE_MS)
    assert bell.wait(LONG_S)
    bell.close()


def test_the_bell_is_silent_when_nothing_has_changed_and_for_what_is_published(
    bench: Bench,
) -> None:
    topic = start(bench, "a", "b")
    claim(bench, topic, "a", 0, 1)
    bell = silent(bench, topic)
    if bell is None:
        return
    for step, changes in STEPS.values():
        if not changes:
            step(bench.store, topic)
    bench.got(topic)
    bench.publish(topic, 1)
    bench.hear_out(bell)
    assert not bell.wait(0.05)
    bell.close()
