"""What all tests share: no settings but their own."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes QFRAME_ variables out of the environment."""
    for name in [name for name in os.environ if name.startswith("QFRAME_")]:
        monkeypatch.delenv(name)
