"""What the docs show is run: a page's Python blocks in order, its console commands in order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from qframe.consumer_options import ConsumerOptions
from qframe.option_rules import option_table
from qframe.settings import Settings

ROOT = Path(__file__).parent.parent
ELSEWHERE = {"spark.md"}  # its Python is run in tests/spark, where there is a JVM
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [body for found, body in BLOCK.findall(text) if found == language]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and page.name not in ELSEWHERE],
    ids=str,
)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n\n".join(blocks(page, "python")), encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=str)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    commands = [
        line.removeprefix("$ qframe ")
        for block in blocks(page, "console")
        for line in block.splitlines()
        if line.startswith("$ qframe ")
    ]
    assert commands
    for command in commands:
        answer = subprocess.run(
            f"{sys.executable} -m qframe {command}",
            shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr


def test_the_readmes_example_bills_both_customers_in_order(tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text(blocks(ROOT / "README.md", "python")[0], encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    billed = re.findall(r"billed (\S+): (\d+)", answer.stdout)
    assert sorted(billed, key=lambda line: line[0]) == [
        ("customer-0", "0"), ("customer-0", "60"), ("customer-0", "120"),
        ("customer-1", "30"), ("customer-1", "90"), ("customer-1", "150"),
    ]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if ":" not in link]
    for link in links:
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_files_named_as_holding_a_promise_exist(page: Path) -> None:
    for name in re.findall(r"`((?:tests|qframe|examples)/[\w/.]+\.py)`", page.read_text("utf-8")):
        assert (ROOT / name).exists(), name


def test_the_options_in_the_docs_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    shown = [line for line in text.splitlines() if line.startswith("| `")]
    expected = [
        f"| `{option.name}` | {option.rule} | {option.default} | {option.help} |".replace("  ", " ")
        for model in (Settings, ConsumerOptions)
        for option in option_table(model)
    ]
    assert shown == expected
