"""In which order the files of tests are begun, so that cores are busy all the time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

# Begun last, one of them would go on alone; those of Spark's one session are one.
LONGEST: Final = ("tests/conformance/test_state_machine.py", "tests/spark/")
# A second each: at the end no worker waits long for another.
SHORTEST: Final = ("tests/unit/",)


class Item(Protocol):
    """A test of pytest's, as far as its place goes."""

    @property
    def nodeid(self) -> str: ...


T = TypeVar("T", bound=Item)


def in_order(items: Iterable[T]) -> list[T]:
    """The longest files first, the shortest last, and those of each other folder all along.

    Tests of one folder are alike: on stores they keep a core busy, beside workers that are killed
    they wait for time. One folder after the other, cores are idle for a while, and then too few.
    """
    folders: dict[str, dict[str, list[T]]] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        folders.setdefault(file.rpartition("/")[0], {}).setdefault(file, []).append(item)
    placed = sorted(
        (not file.startswith(LONGEST), file.startswith(SHORTEST), (number + 0.5) / len(files), file)
        for files in folders.values()
        for number, file in enumerate(files)
    )
    return [item for *_, file in placed for item in folders[file.rpartition("/")[0]][file]]
