"""What users may rely on is written down, and changes only on purpose."""

from __future__ import annotations

from pathlib import Path

from api_listing import listing

import qframe


def test_the_public_api_is_the_one_in_docs_api_txt() -> None:
    written = (Path(__file__).parent.parent / "docs" / "api.txt").read_text(encoding="utf-8")
    assert listing() == written, "if this change is meant: make api"


def test_all_is_sorted_and_complete() -> None:
    names = qframe.__all__
    assert names == sorted(names, key=lambda name: (not name[0].isupper(), name))
    assert len(names) == len(set(names))
    for name in names:
        assert getattr(qframe, name).__doc__, name
