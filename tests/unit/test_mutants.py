"""The list of planted faults stays valid: what each changes is there, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants.kept import KEPT, Mutant
from simulation.kept import KEPT as SEEDS

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "qframe"


@pytest.mark.parametrize("mutant", KEPT, ids=lambda mutant: mutant.name)
def test_a_planted_fault_has_its_place(mutant: Mutant) -> None:
    text = (PACKAGE / mutant.path).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1
    assert mutant.old != mutant.new
    if mutant.path.endswith(".py"):  # else any test finds it
        compile(text.replace(mutant.old, mutant.new), mutant.path, "exec")
    files = [word for word in mutant.tests.split() if word.startswith("tests/")]
    assert files
    assert all((ROOT / file).is_file() for file in files)


def test_each_kept_seed_names_its_fault() -> None:
    assert set(SEEDS.values()) <= {mutant.name for mutant in KEPT}


def test_at_least_forty_are_kept() -> None:
    assert len({mutant.name for mutant in KEPT}) == len(KEPT) >= 40
