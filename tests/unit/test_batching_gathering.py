"""What becomes a batch, and when: the pure part, with a clock that moves when it is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qframe.batching.gathering import Channel, Gathering
from qframe.clock import VirtualClock

STEP_MS = 125  # an eighth of a second, which no float rounds

Taken = tuple[Channel[tuple[int, int, float]], list[tuple[int, int, float]]]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2)),
        st.tuples(st.just("pass"), st.integers(1, 5)),
        st.tuples(st.just("take"), st.integers(0, 0)),
        st.tuples(st.just("done"), st.integers(0, 5)),
    ),
    max_size=120,
)


@given(
    STEPS, st.integers(1, 3), st.integers(1, 5), st.sampled_from([0, 1, 2, 4]), st.booleans()
)  # fmt: skip
def test_a_batch_leaves_full_or_with_its_time_and_what_may_leave_is_never_held(
    steps: list[tuple[str, int]], channels: int, size: int, interval: int, serial: bool
) -> None:
    clock = VirtualClock()
    interval_s = interval * STEP_MS / 1000
    gathering: Gathering[tuple[int, int, float]] = Gathering(
        channels=channels, batch_size=size, interval_s=interval_s, serial=serial, clock=clock
    )
    running: list[Taken] = []
    came: list[list[tuple[int, int, float]]] = [[] for _ in range(channels)]
    left: list[list[tuple[int, int, float]]] = [[] for _ in range(channels)]

    def may_leave(index: int) -> bool:
        """Whether a channel has a full batch, or one whose time has passed, and may run it."""
        waiting = came[index][len(left[index]) :]
        busy = serial and any(channel.index == index for channel, _ in running)
        return not busy and bool(waiting) and (
            len(waiting) >= size or clock.monotonic_s() - waiting[0][2] >= interval_s
        )  # fmt: skip

    for number, (step, value) in enumerate(steps):
        if step == "add":
            item = (value % channels, number, clock.monotonic_s())
            came[item[0]].append(item)
            gathering.add(gathering.channels[item[0]], item)
        elif step == "pass":
            clock.advance(value * STEP_MS)
        elif step == "done" and running:
            channel, items = running.pop(value % len(running))
            gathering.done(channel, len(items))
        elif step == "take":
            expected = {index for index in range(channels) if may_leave(index)}
            taken = gathering.take(everything=False)
            assert (taken is not None) == bool(expected)
            if taken is not None:
                channel, items = taken
                assert channel.index in expected
                assert 1 <= len(items) <= size
                start = len(left[channel.index])
                assert items == came[channel.index][start : start + len(items)]
                is_old = clock.monotonic_s() - items[0][2] >= interval_s
                assert len(items) == size or is_old
                left[channel.index] += items
                running.append(taken)
        assert gathering.size == sum(map(len, came)) - sum(map(len, left))
        assert gathering.running == sum(len(items) for _, items in running)
    rest = gathering.clear()
    assert rest == [item for index in range(channels) for item in came[index][len(left[index]) :]]
    assert gathering.size == 0


def test_the_channels_that_are_due_take_turns() -> None:
    gathering: Gathering[int] = Gathering(
        channels=3, batch_size=1, interval_s=0, serial=True, clock=VirtualClock()
    )
    for index in (2, 2, 2, 0, 0, 1):
        gathering.add(gathering.channels[index], index)
    order = []
    while (taken := gathering.take(everything=False)) is not None:
        order.append(taken[0].index)
        gathering.done(taken[0], 1)
    assert order == [2, 0, 1, 2, 0, 2]


def test_a_batch_that_was_due_and_became_full_does_not_take_the_next_one_along() -> None:
    clock = VirtualClock()
    gathering: Gathering[int] = Gathering(
        channels=1, batch_size=2, interval_s=1.0, serial=True, clock=clock
    )
    [channel] = gathering.channels
    for number in range(2):
        gathering.add(channel, number)
    assert gathering.take(everything=False) == (channel, [0, 1])  # the next ones wait for it
    gathering.add(channel, 2)
    clock.advance(1000)
    assert gathering.take(everything=False) is None
    for number in (3, 4):
        gathering.add(channel, number)
    gathering.done(channel, 2)
    assert gathering.take(everything=False) == (channel, [2, 3])
    gathering.done(channel, 2)
    assert gathering.take(everything=False) is None
    clock.advance(1000)
    assert gathering.take(everything=False) == (channel, [4])
    for number in (5, 6):
        gathering.add(channel, number)
    clock.advance(1000)
    assert gathering.take(everything=False) is None
    gathering.add(channel, 7)
    gathering.done(channel, 1)
    assert gathering.take(everything=False) == (channel, [5, 6])
    gathering.done(channel, 2)
    assert gathering.take(everything=False) is None
