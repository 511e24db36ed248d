"""The order of imports: the contracts in `pyproject.toml` hold, and import-linter finds faults."""

from __future__ import annotations

import shutil
from pathlib import Path

from programs import ROOT, python

PLANTED = {
    "clock.py": "from qframe.app.qframe import QFrame",
    "runtime/worker.py": "from qframe.telemetry import logs",
    "stores/base.py": "from qframe.coordination import base",
    "stores/types.py": "from qframe.stores import records",
    "options/rules.py": "def later():\n    from qframe.options import settings",
    "homeless.py": "",
}
FOUND = (
    "The folders and modules of qframe BROKEN",
    "qframe.clock -> qframe.app.qframe",
    "qframe.runtime.worker -> qframe.telemetry.logs",
    "qframe.stores.base -> qframe.coordination.base",
    "qframe.homeless",
    "The folders and modules of stores BROKEN",
    "qframe.stores.types -> qframe.stores.records",
    "No cycles inside a folder BROKEN",
    "qframe.options",
)


def linted(folder: Path) -> tuple[bool, str]:
    """Whether the package in a folder keeps the contracts, and what import-linter says."""
    said = python(
        "-c", "from importlinter.cli import lint_imports_command as run; run()",
        "--no-cache", "--no-logo", "--config", str(ROOT / "pyproject.toml"),
        cwd=folder, PYTHONPATH=str(folder), COLUMNS="200",
    )  # fmt: skip
    return said.returncode == 0, said.stdout + said.stderr


def test_imports_keep_their_order() -> None:
    kept, said = linted(ROOT)
    assert kept, said


def test_each_planted_import_is_found(tmp_path: Path) -> None:
    package = tmp_path / "qframe"
    shutil.copytree(ROOT / "qframe", package, ignore=shutil.ignore_patterns("__pycache__"))
    for place, text in PLANTED.items():
        path = package / place
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(f"{before}\n{text}\n", encoding="utf-8")
    kept, said = linted(tmp_path)
    assert not kept
    missing = [each for each in FOUND if each not in said]
    assert not missing, f"{missing} in:\n{said}"
