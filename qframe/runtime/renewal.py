"""When leases and claims are renewed."""

from __future__ import annotations


def renewed_in_s(lease_ms: int, *, was_answered: bool) -> float:
    """How long after a round the next one is due.

    A third of a lease; a twelfth after one that was not answered, so that a lease outlives a store
    that is away for a moment, and then for another.
    """
    return lease_ms / (3000 if was_answered else 12_000)
