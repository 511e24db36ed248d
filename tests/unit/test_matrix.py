"""The table of platforms in the docs is the matrix's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import matrix


def test_the_docs_have_every_row_of_the_matrix_with_its_date_and_none_that_failed() -> None:
    result = r"(?:[\d,]+ passed \| \d{4}-\d\d-\d\d|not run \| -)"
    page = matrix.PAGE.read_text(encoding="utf-8")
    names = re.findall(rf"^\| ([\w.-]+) \| .+ \| {result} \|$", page, re.MULTILINE)
    assert names == [row.name for row in matrix.ROWS]


def test_what_was_run_takes_the_place_of_the_same_row_on_the_page() -> None:
    page = "# Page\n| redis | 7 | old |\n| redis-8 | 8 | old |\n"
    written = matrix.with_rows(page, [r"| redis | 7\.0 | new |"])
    assert written == "# Page\n| redis | 7\\.0 | new |\n| redis-8 | 8 | old |\n"


def test_every_python_that_the_package_names_has_a_row() -> None:
    project = (matrix.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert {row.name for row in matrix.ROWS} >= {f"python-{version}" for version in named}


def test_a_python_that_is_not_found_is_named_and_a_failure_in_ci_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "ENVIRONMENTS", tmp_path)
    row = matrix.Row("python-3.99", (), "3.99")
    monkeypatch.delenv("CI", raising=False)
    line, passed = matrix.carried_out(row, tmp_path)
    assert line.startswith("| python-3.99 | Python 3.99 was not found, neither on the PATH")
    assert passed
    monkeypatch.setenv("CI", "true")
    assert matrix.carried_out(row, tmp_path)[1] is False
