"""Every word in a module's or class's name is explained or listed on the page of words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "qframe"
PAGE = ROOT / "docs" / "contributors" / "glossary.md"
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
ROW = re.compile(r"^\| ([a-z, ]+) \|", re.MULTILINE)


def words(name: str) -> set[str]:
    """The words of a name, in lower case and without a plural's s."""
    return {singular(word.lower()) for word in WORD.findall(name)}


def singular(word: str) -> str:
    """A word without its plural ending; what is no plural may lose its s too, on both sides."""
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def names() -> Iterator[tuple[str, str]]:
    """Each module and class, and its file."""
    for file in sorted(PACKAGE.rglob("*.py")):
        place = str(file.relative_to(ROOT))
        yield file.parent.name if file.name == "__init__.py" else file.stem, place
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name, place


def allowed() -> set[str]:
    text = PAGE.read_text(encoding="utf-8")
    explained = {word for row in ROW.findall(text) for word in re.findall("[a-z]+", row)}
    listed = re.findall("[a-z]+", text.partition("\n## Plain words\n")[2].partition("\n\n")[2])
    return {singular(word) for word in {*explained, *listed}}


def test_names_of_modules_and_classes_are_made_of_the_glossarys_words() -> None:
    known = allowed()
    unknown = [
        f"{place}: {word!r} in {name}" for name, place in names() for word in words(name) - known
    ]
    assert not unknown, f"explain or list these in {PAGE.relative_to(ROOT)}: {unknown}"
