"""Settings: those of the app whose store this is, and where each comes from; nothing is changed."""

from __future__ import annotations

from typing import Any

from qframe import __version__
from qframe.options.rules import options_of
from qframe.options.settings import Settings, sources_of
from qframe.web.desk import Visit


def facts(visit: Visit) -> dict[str, Any]:
    """Every setting, its value, its source and its meaning."""
    settings = visit.desk.app.settings
    options = options_of(Settings)
    rows = []
    for name, value, source in sources_of(settings):
        told = "in the code" if name in settings.given and source == "default" else source
        rows.append((name, value, told, options[name].help))
    return {"title": "Settings", "settings": rows, "version": __version__}
