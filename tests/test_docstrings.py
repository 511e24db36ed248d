"""Docstrings begin their sentences with a noun or a verb: the subject comes first."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "qframe"
SENTENCE = re.compile(r"(?:^|(?<=[.!?])\s+|\n\n\s*(?:[*-] )?)(?=\S)")
INVERTED = re.compile(r"\W*(?:What|Whatever|Who|Whoever|Whom|Whose|Those|None of|They that)\b")


def inverted(package: Path) -> Iterator[str]:
    """The sentences of docstrings that begin with a relative clause, and their files."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, documented) else None
            for sentence in SENTENCE.split(text or ""):
                if INVERTED.match(sentence):
                    yield f"{path.relative_to(package).as_posix()}: {sentence}"


def test_no_sentence_of_a_docstring_begins_with_a_relative_clause() -> None:
    assert list(inverted(PACKAGE)) == []


def test_a_planted_relative_clause_is_found(tmp_path: Path) -> None:
    text = "Returns those that stay.\n\n    What goes is lost. **Who** stays, stays.\n    "
    code = f'def stay():\n    """{text}"""'
    (tmp_path / "one.py").write_text(code, encoding="utf-8")
    assert list(inverted(tmp_path)) == [
        "one.py: What goes is lost.",
        "one.py: **Who** stays, stays.",
    ]
