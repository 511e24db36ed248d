"""What all tests share: no settings but their own, and helpers beside this file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes QFRAME_ variables out of the environment."""
    for name in [name for name in os.environ if name.startswith("QFRAME_")]:
        monkeypatch.delenv(name)
