"""What fails in a scene is shown as it is in a test."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("matrix.scene")
