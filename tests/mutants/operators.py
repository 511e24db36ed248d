"""Faults that show where operators empty groups, which a share of simulated runs has."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

OPERATORS: Final = [
    Mutant(
        "a seek to the latest goes back to the end that it has read",
        "admin/groups.py",
        '    return dict.fromkeys(positions, _BEYOND) if to == "latest" else positions\n',
        "    return positions\n",
        UNIT + "test_admin.py",
    ),
]
