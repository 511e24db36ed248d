"""One name for one thing: no two classes of the package have one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "qframe"


def homonyms(package: Path) -> dict[str, list[str]]:
    """Class names that stand for several classes, and their modules; a leading `_` is no name."""
    found = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(path.relative_to(package).as_posix())
    return {name: places for name, places in found.items() if len(places) > 1}


def test_no_two_classes_have_one_name() -> None:
    assert homonyms(PACKAGE) == {}


def test_a_planted_homonym_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Place:\n    pass\n", encoding="utf-8")
    (tmp_path / "two.py").write_text("class _Place:\n    pass\n", encoding="utf-8")
    assert homonyms(tmp_path) == {"Place": ["one.py", "two.py"]}
