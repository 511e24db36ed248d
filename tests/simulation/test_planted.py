"""A planted fault that a seed finds is found again by that seed, wherever it is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mutants.kept import KEPT

ROOT = Path(__file__).parent.parent.parent
PLANTED = "a lost reply of a pull is not in doubt"


def said(copy: Path, *words: str, hashes: str) -> str:
    """What a run of the simulator says that finds something."""
    environment = {
        **os.environ, "PYTHONHASHSEED": hashes,
        "PYTHONPATH": os.pathsep.join([str(copy / "tests"), str(copy)]),
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-m", "simulation", "--whole", *words], cwd=copy, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stdout


def history(text: str) -> str:
    """From the seed on, step by step, to how it can be had again."""
    return text[text.index("seed ") : text.index("again: ")]


@pytest.mark.gate
def test_a_seed_that_has_found_a_planted_fault_fails_alike_elsewhere(tmp_path: Path) -> None:
    """In another folder and process, whose hashes are others, by what is printed alone."""
    here, elsewhere = tmp_path / "here", tmp_path / "else" / "where"
    for folder in ("qframe", "tests/simulation"):
        shutil.copytree(
            ROOT / folder, here / folder, ignore=shutil.ignore_patterns("__pycache__", "test_*")
        )
    [mutant] = [each for each in KEPT if each.name == PLANTED]
    path = here / "qframe" / mutant.path
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")

    first = said(here, "--seeds", "0:800", "--stop", hashes="1")
    [seed] = re.findall(r'make simulate ARGS="--seed (\S+) --history"', first)
    elsewhere.parent.mkdir()
    here.rename(elsewhere)
    second = said(elsewhere, "--seed", seed, "--history", hashes="2")
    assert len(history(first).splitlines()) > 50
    assert history(second) == history(first)
