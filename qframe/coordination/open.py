"""Chooses the coordinator that a URL names."""

from __future__ import annotations

from qframe.coordination.base import Coordinator, Ledger
from qframe.coordination.sole import SoleCoordinator
from qframe.errors import BadUrl, NotSupported


def open_coordinator(url: str, ledger: Ledger) -> Coordinator:
    """The coordinator at a URL; the ledger itself (the store) where there is none.

    Raises:
        NotSupported: for `zookeeper://`.
        BadUrl: for anything else.
    """
    if not url:
        return SoleCoordinator(ledger)
    if url.startswith("zookeeper://"):
        raise NotSupported(
            "coordinator zookeeper://", "leave coordinator out: the store then keeps who owns what"
        )
    raise BadUrl(
        "coordinator", url, "there is no such coordinator", "leave it out, or use zookeeper://"
    )
