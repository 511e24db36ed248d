"""Names of modules and classes are made of words that users read or that the glossary explains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "qframe"
PAGE = ROOT / "docs" / "contributors" / "glossary.md"
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
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


def explained(page: str) -> set[str]:
    """The words that have a row."""
    return {singular(word) for row in ROW.findall(page) for word in re.findall("[a-z]+", row)}


def read_by_users() -> set[str]:
    """The words of all pages for users: of their sentences, not of the code in them."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "".join(CODE.sub(" ", page.read_text(encoding="utf-8")) for page in pages)
    return {singular(word.lower()) for word in re.findall("[A-Za-z]+", text)}


def unknown(names: Iterable[tuple[str, str]], page: str) -> list[str]:
    known = explained(page) | read_by_users()
    return [f"{place}: {word!r} in {name}" for name, place in names for word in words(name) - known]


def test_names_of_modules_and_classes_are_made_of_words_that_users_read_or_the_glossary_has() -> (
    None
):
    found = unknown(names(), PAGE.read_text(encoding="utf-8"))
    assert not found, f"take other words, or explain these in {PAGE.relative_to(ROOT)}: {found}"


def test_the_codes_own_words_are_in_names() -> None:
    rows = PAGE.read_text(encoding="utf-8").partition("\n## Code\n")[2].partition("| --- |")[2]
    assert explained(rows) <= {word for name, _ in names() for word in words(name)}


def test_a_planted_word_of_ones_own_is_found() -> None:
    planted = [("BatchSqueezer", "here.py"), ("squeezers", "there.py")]
    page = PAGE.read_text(encoding="utf-8")
    assert unknown(planted, page) == [
        "here.py: 'squeezer' in BatchSqueezer",
        "there.py: 'squeezer' in squeezers",
    ]
    assert not unknown(planted, page + "\n| squeezer | makes batches small |")
