"""Every thread that qframe starts is on the page of architecture, under the name that it has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contributors" / "architecture.md"
TABLE = re.compile(r"^\| (`qframe\..*?) \|", re.MULTILINE)
NAME = re.compile(r"qframe\.([a-z-]+)")
MAKERS = {
    "__init__", "Thread", "new_thread", "ThreadPoolExecutor", "DaemonThreadExecutor",
    "CallsInThreads", "CombinedCalls", "EffectSweeper", "ExecutorParts", "Feed",
}  # fmt: skip
"""What is given a thread's name: a `Service` by its base, and the others by themselves."""


def starts(node: ast.expr) -> str:
    """The text with which a string begins, or "" for anything else."""
    if isinstance(node, ast.JoinedStr):
        return starts(node.values[0]) if node.values else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def threads(package: Path) -> Iterator[str]:
    """The parts for which threads are named."""
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            for text in map(starts, given):
                if name == "name_of" and text:
                    yield text
                elif name in MAKERS and (found := NAME.match(text)):
                    yield found[1]


def test_the_page_of_architecture_names_all_threads_and_no_others() -> None:
    rows = TABLE.findall(PAGE.read_text(encoding="utf-8"))
    shown = {name for row in rows for name in NAME.findall(row)}
    found = set(threads(ROOT / "qframe"))
    assert shown - found - {"pulling"} == set()  # a pull makes its thread's name before the thread
    assert found - shown == set()
