"""Chooses the coordinator that a URL names."""

from __future__ import annotations

from qframe.clock import Clock
from qframe.coordination.base import Coordinator, LeaseStore, OnFailure
from qframe.coordination.lease import LeaseCoordinator
from qframe.errors import BadUrl
from qframe.events import Events
from qframe.redaction import shown_url

SCHEMES = ("zookeeper://", "zookeepers://")


def open_coordinator(
    url: str,
    store: LeaseStore,
    *,
    namespace: str,
    worker: str,
    session_s: float,
    events: Events,
    clock: Clock,
    on_failure: OnFailure,
) -> Coordinator:
    """Opens the coordinator at a URL; the store itself without a URL.

    Args:
        url: `zookeeper://…`, or nothing.
        store: the store.
        namespace: keeps apart what several systems keep in one place.
        worker: this worker's id.
        session_s: how long a worker may be silent before others take its slots.
        events: hears what happens.
        clock: the clock.
        on_failure: called with a part's name and an error after which the worker must end.

    Raises:
        BadUrl: if the URL names no coordinator.
    """
    if not url:
        return LeaseCoordinator(
            store, worker=worker, session_s=session_s, events=events, clock=clock,
            on_failure=on_failure,
        )  # fmt: skip
    if url.startswith(SCHEMES):
        from qframe.coordination.zookeeper import ZooKeeperCoordinator

        return ZooKeeperCoordinator(
            url, store, namespace=namespace, worker=worker, session_s=session_s, events=events,
            clock=clock, on_failure=on_failure,
        )  # fmt: skip
    raise BadUrl(
        "coordinator", shown_url(url), "there is no such coordinator",
        "leave it out, or use zookeeper:// or zookeepers://",
    )  # fmt: skip
