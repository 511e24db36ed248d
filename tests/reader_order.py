"""The pages of the docs in a reader's order, and the line at each one's end that leads on.

python tests/reader_order.py        writes these lines anew
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs"
INDEX: Final = DOCS / "index.md"
_ENTRY: Final = re.compile(r"^- \[([^\]]+)\]\(([\w/-]+\.md)\)", re.MULTILINE)
_LAST_LINE: Final = re.compile(r"\n*^---\n\n(?:Previous|Next|All pages).*\n*\Z", re.MULTILINE)


def users_pages() -> list[tuple[str, Path]]:
    """Title and file of each page that the index lists for users, in its order."""
    listed = INDEX.read_text(encoding="utf-8").split("\n## For contributors")[0]
    return [(title, DOCS / name) for title, name in _ENTRY.findall(listed)]


def last_line(page: Path) -> str:
    """The line that a page must end with: its neighbours, and the index."""
    pages = users_pages()
    place = [file for _, file in pages].index(page)
    parts = []
    for word, number in (("Previous", place - 1), ("Next", place + 1)):
        if 0 <= number < len(pages):
            title, file = pages[number]
            parts.append(f"{word}: [{title}]({os.path.relpath(file, page.parent)})")
    return " · ".join([*parts, f"[All pages]({os.path.relpath(INDEX, page.parent)})"])


def main() -> None:
    """Writes the last line of every page."""
    for _, page in users_pages():
        text = _LAST_LINE.sub("", page.read_text(encoding="utf-8")).rstrip()
        page.write_text(f"{text}\n\n---\n\n{last_line(page)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
