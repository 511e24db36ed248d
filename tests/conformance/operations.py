"""What may be done to a topic, drawn by weight.

There is one rule for all of it: with a rule for each, Hypothesis leaves some out of every example,
and hardly any message would live through publish, pull and settle.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from qframe.outcomes import Verdict

KEYS = ("a", "b", "c")
GROUPS = ("g", "h")
SLOTS = 2
LEASE_MS = 300

Op = tuple[str, dict[str, Any]]
BEGINNING = {
    "limited": st.sampled_from([False, True]),
    "subscribed": st.sampled_from([2, 1, 0]),
    "max_parked": st.sampled_from([2, 1, 0]),
    "grows": st.sampled_from([True, False]),
}


def operations(is_stream: bool) -> st.SearchStrategy[Op]:
    """What may be done to a stream, or to a topic of another kind; what weighs more, more often.

    Hypothesis prefers what stands first, so that is what drives a message through its life.
    """
    group = st.sampled_from(GROUPS)
    slot = st.integers(0, SLOTS - 1)
    more = [Verdict.ACK, Verdict.ACK] if not is_stream else [Verdict.RETRY]
    verdict = st.sampled_from([*Verdict, *more, Verdict.RETRY])
    timed = [None, None, "delay", "at"] if is_stream else [*4 * [None], "delay", "at"]
    item = st.tuples(
        st.sampled_from(["a", "a", *KEYS, None]),
        st.integers(0, 3),
        st.sampled_from(timed),
        st.sampled_from([0, 50, 150, 400]),
        st.integers(-1, 2),
        st.sampled_from([None, None, None, "named", "old"]),
        st.sampled_from([*4 * [None], 1, 2, 3, 5]),
    )
    weighed: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
        "work": (16, {
            "group": group,
            "ms": st.sampled_from([LEASE_MS, 0, 0, 1, 50, 150, 401, 1100]),
            "limit": st.sampled_from([1, 2, 3, 10, 10]),
            "run": st.sampled_from([32, 1, 2]),
            "attempts": st.sampled_from([2, 2, 1]),
            "reply": st.sampled_from(["received"] * 4 + ["lost", "fenced"]),
            "verdicts": st.sampled_from([2, 0, 4, 6]).flatmap(
                    lambda most: st.lists(verdict, min_size=most, max_size=most)
                ),
                "backwards": st.sampled_from([False, False, True]),
        }),
        "publish": (6, {
            "items": st.lists(item, min_size=1, max_size=5),
            "lost": st.booleans(),
        }),
        "settle": (
            7, {
            "chosen": st.lists(st.tuples(st.integers(0, 6), verdict), min_size=1, max_size=6),
            "delay": st.sampled_from([0, 1, 50, 400]),
            "wrong": st.sampled_from([None, None, "receipt", "epoch"]),
        }),
        "subscribe": (2, {
            "group": group,
            "start": st.sampled_from(["earliest", "latest"]),
            "owned": st.sampled_from([True, True, False]),
            "expires": st.sampled_from([None, 150, 500]),
            "beside": st.one_of(st.just(""), group),
            "max_parked": st.sampled_from([2, 1, 0]),
        }),
        "take": (2, {
            "group": group,
            "slots": st.sets(slot, min_size=1),
            "back": st.sampled_from([0, 0, 3, 9]),
        }),
        "drop_group": (1, {"group": group}),
        "renew": (3, {
            "numbers": st.lists(st.integers(0, 12), min_size=1, max_size=4),
            "lease": st.sampled_from([100, 500]),
        }),
        "dead_letters": (5, {
            "group": group,
            "what": st.sampled_from(["retry_dead", "retry_dead", "drop_dead"]),
            "number": st.sampled_from([None, 0]),
        }),
        "grow": (4, {
            "steps": st.sampled_from([6, 3, 1, 9]),
            "how": st.sampled_from(["on", "on", "abandon", "another"]),
        }),
        "sweep": (3, {}),
        "look": (3, {"group": group, "number": st.integers(1, 6)}),
    }  # fmt: skip
    if is_stream:
        weighed["seek"] = 4, {"group": group, "slot": slot, "to": st.integers(0, 8)}
    else:
        weighed["timer"] = (
            5,
            {
                "key": st.sampled_from(["a", *KEYS]),
                "what": st.sampled_from(["move", "change", "cancel"]),
                "ms": st.sampled_from([-50, 0, 200]),
            },
        )
    options = {name: st.fixed_dictionaries(each) for name, (_, each) in weighed.items()}
    names = [name for name, (weight, _) in weighed.items() for _ in range(weight)]

    @st.composite
    def operation(draw: st.DrawFn) -> Op:
        name = draw(st.sampled_from(names))
        return name, draw(options[name])

    return operation()
