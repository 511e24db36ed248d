"""The parts of a consumer that its executor is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from qframe.runtime.consume.engine import Engine
from qframe.runtime.handler.meter import Meter
from qframe.runtime.handler.time_limit import TimeLimit
from qframe.runtime.order.batches import Batches


class ExecutorParts(NamedTuple):
    """The parts of a consumer that its executor is given.

    Attributes:
        work: begins and ends attempts.
        batches: where a handler of batches gets them from.
        time_limit: how long a handler may run.
        meter: counts the handler's calls, if somebody wants to know.
        relieve: has another thread go on with pulling, if the present one handles a message.
    """

    work: Engine
    batches: Batches | None
    time_limit: TimeLimit
    meter: Meter | None
    relieve: Callable[[], None]
