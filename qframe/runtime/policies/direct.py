"""Effects as often as a handler is called: there is nobody to ask."""

from __future__ import annotations

from qframe.runtime.handler.attempt import Attempt
from qframe.runtime.policies.base import EffectPolicy, Sorting


class Direct(EffectPolicy):
    """At least once: the store is told when the handler has returned."""

    blocks = in_loop = is_joint = False

    def prepare(self, run: list[Attempt]) -> Sorting:
        """Lets all go."""
        return Sorting(go=run)

    def begin(self, unit: list[Attempt]) -> Sorting:
        """Lets all go."""
        return Sorting(go=unit)

    def end(self, unit: list[Attempt]) -> Sorting:
        """Ends all."""
        return Sorting(ended=unit)
