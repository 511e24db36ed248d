"""How `opentelemetry-instrument` finds qframe: the entry point `opentelemetry_instrumentor`."""

from __future__ import annotations

from typing import Any

from qframe.app.registry import REGISTRY
from qframe.telemetry.tracing import Tracing


class QFrameInstrumentor:
    """Traces every app of this process, those that are made later among them."""

    def instrument(
        self, *, tracer_provider: Any = None, parent: bool = False, **_options: object
    ) -> None:
        """Begins.

        Args:
            tracer_provider: by default the global one.
            parent: as of `Tracing`.
        """
        tracing = Tracing(tracer_provider, parent=parent)
        REGISTRY.each(lambda app: app.trace(tracing))

    def uninstrument(self, **_options: object) -> None:
        """Leaves apps that are made from now on untraced."""
        REGISTRY.each(None)
