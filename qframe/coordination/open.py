"""Chooses the coordinator that a URL names."""

from __future__ import annotations

from qframe.clock import Clock
from qframe.coordination.base import Coordinator, Ledger, OnFailure
from qframe.coordination.lease import LeaseCoordinator
from qframe.errors import BadUrl
from qframe.events import Events
from qframe.redaction import shown_url

SCHEMES = ("zookeeper://", "zookeepers://")


def open_coordinator(
    url: str,
    ledger: Ledger,
    *,
    namespace: str,
    worker: str,
    session_s: float,
    events: Events,
    clock: Clock,
    on_failure: OnFailure,
) -> Coordinator:
    """The coordinator at a URL; the ledger itself (the store) where there is none.

    Args:
        url: `zookeeper://…`, or nothing.
        ledger: the store.
        namespace: keeps apart what several systems keep in one place.
        worker: this worker's id.
        session_s: how long a worker may be unheard before others take its slots.
        events: told of what happens.
        clock: the clock.
        on_failure: called with a part's name and an error after which the worker must end.

    Raises:
        BadUrl: if it names no coordinator.
    """
    if not url:
        return LeaseCoordinator(
            ledger, worker=worker, session_s=session_s, events=events, clock=clock,
            on_failure=on_failure,
        )  # fmt: skip
    if url.startswith(SCHEMES):
        from qframe.coordination.zookeeper import ZooKeeperCoordinator

        return ZooKeeperCoordinator(
            url, ledger, namespace=namespace, worker=worker, session_s=session_s, events=events,
            clock=clock, on_failure=on_failure,
        )  # fmt: skip
    raise BadUrl(
        "coordinator", shown_url(url), "there is no such coordinator",
        "leave it out, or use zookeeper:// or zookeepers://",
    )  # fmt: skip
