"""Imported by each Python that a test starts: it reaches nothing but loopback."""

from __future__ import annotations

import os
import sys

sys.path.insert(1, os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120 - loaded each time
try:
    from loopback import guard
finally:
    del sys.path[1]
guard()
