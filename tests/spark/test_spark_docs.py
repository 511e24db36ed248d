"""The Python of docs/spark.md runs, and the example proves its totals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.flights_spark import __main__ as example
from qframe.spark import options

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_python_of_the_page_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "\n".join(BLOCKS)
    # The JVM's own directory is not this test's.
    for name in ("spark.db", "checkpoint", "archive.parquet"):
        program = program.replace(f'"{name}"', f'"{tmp_path / name}"')
    program = program.replace("sqlite:///spark.db", f"sqlite:///{tmp_path / 'spark.db'}")
    exec(compile(program, "spark.md", "exec"), {"__name__": "page"})
    assert (tmp_path / "spark.db").exists()


def test_the_page_tells_of_every_option() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE))
    assert {*options.WRITING, *options.READING} <= told


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_example_proves_its_totals(
    spark: SparkSession, tmp_path: Path, database: str, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in ("QFRAME_STORE", "QFRAME_NAMESPACE"):
        monkeypatch.setenv(name, "")  # the example sets them, and other tests want none
    words = ["--limit", "2000", "--keep", str(tmp_path)]
    if database == "postgres":
        words += ["--database", request.getfixturevalue("postgres").new_database()]
    status = example.main(words)
    said = capsys.readouterr().out
    assert status == 0, said
    assert said.count("equals the data set") == 4
    assert "NO" not in said.split()
    assert (tmp_path / "days.db").exists() == (database == "sqlite")
