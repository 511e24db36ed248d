"""Values for `IN (…)`: lists of few lengths, so that there are few texts of statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

# With more, PostgreSQL reads all of a cursor's subjects and filters them, as long as its statistics
# are those of a shorter queue: publishing would cost what stands in the queue.
MAX_IN: Final = 32
SIZES: Final = (1, 2, 4, 8, 16, MAX_IN)

Value = TypeVar("Value", str, int)


def padded(values: Sequence[Value]) -> list[list[Value]]:
    """Values in groups of 1, 2, 4 … 32, the last repeated to fill."""
    groups = []
    for start in range(0, len(values), MAX_IN):
        group = list(values[start : start + MAX_IN])
        size = 1 << (len(group) - 1).bit_length()
        groups.append(group + [group[-1]] * (size - len(group)))
    return groups
