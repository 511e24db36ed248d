"""The health of a process: whether it lives, is ready, and has started.

A worker's states, and the replies of the three probes in each:

    state       from                                   /livez        /readyz           /startupz
    idle        no worker runs                         200           503               503
    starting    it is made                             200           503               503
    serving     all of its parts have started          loops move?   joined, and       200
                                                                     the store heard?
    stopping    it was asked to stop, or has failed    200           503               200

`/livez` is for restarting, so it fails for nothing that a restart does not mend. It fails when a
loop is at one step for `LIVE_WITHIN_S`: a pull loop, a settler, a lease renewal, a membership, a
relay, the worker's main loop; or when the event loop of async handlers lets a call wait for so
long. Handlers run outside the loops, so a handler of an hour is no fault; an async one that blocks
the event loop stops all others, and is one. A store or coordinator that is away is no
fault either: each call to it ends within its timeout, and the loop moves on. Time in which the
whole process was frozen does not count. A worker that starts or stops has limits of its own:
`--wait`, `/startupz`, and the grace of whoever stops it.

`/readyz` is for rollouts: every consumer has joined its group and hears the coordinator, and the
store has replied to the worker's last question, which it asks every second. So no probe waits for a
store. `/startupz` stays 200 once it was.

A supervisor's children report their health to it every second, by the pipe between them. It is
live unless one of them reports a loop that stands still, or has said nothing for `LIVE_WITHIN_S`; a
child that died is no fault of liveness, since the supervisor restarts it, but it is not ready.

Failures: a look never raises and never waits, so a probe that gets no reply means a process that
has no thread left, or is frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Self

import msgspec

LIVE_WITHIN_S: Final = 45.0  # after the watchdog's new connections, before it ends the worker
HEARD_WITHIN_S: Final = 5.0

State = Literal["idle", "starting", "serving", "stopping"]


class Health(msgspec.Struct, kw_only=True, frozen=True):
    """How a worker, or all workers of a process, are.

    Attributes:
        state: `idle`, `starting`, `serving` or `stopping`.
        live: whether its loops move; if not, restart it.
        ready: whether it has joined all of its groups and the store replies.
        faults: why it is not live or not ready, in words.
    """

    state: State
    live: bool = True
    ready: bool = False
    faults: list[str] = []

    @classmethod
    def of(cls, state: State, *, standing: Sequence[str] = (), lacking: Sequence[str] = ()) -> Self:
        """The health that follows from loops that stand still, and from what is lacking."""
        return cls(
            state=state, live=not standing, ready=state == "serving" and not (standing or lacking),
            faults=[*standing, *lacking],
        )  # fmt: skip


def combined(healths: Sequence[Health]) -> Health:
    """The health of several workers together: the worst of each."""
    states = {health.state for health in healths}
    state: State = "starting"
    if "stopping" in states:
        state = "stopping"
    elif len(states) == 1:
        [state] = states
    return Health(
        state=state,
        live=all(health.live for health in healths),
        ready=bool(healths) and all(health.ready for health in healths),
        faults=[fault for health in healths for fault in health.faults],
    )
