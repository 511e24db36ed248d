"""Testing handlers without a store or a clock: for a later version."""

from __future__ import annotations

from qframe.app import QFrame
from qframe.errors import NotSupported


class Harness:
    """Runs an app's handlers on a store in memory, under a clock that the test moves.

    Raises:
        NotSupported: in this version.
    """

    def __init__(self, app: QFrame) -> None:
        raise NotSupported(
            f"testing.Harness({type(app).__name__})",
            "call the handler, which is your own function still, or use store='model://'",
        )
