"""Rows of Parquet files, for publishing without Spark; pyarrow reads them, where it is there."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from qframe.errors import BadOption, NotSupported

PARQUET: Final = ".parquet"
ROWS: Final = 5_000


def parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The rows of a file, or of all files of a folder, numbered from 1; a few in memory at a time.

    A column of maps, such as headers, is read as objects.

    Raises:
        NotSupported: if pyarrow is not installed.
        BadOption: if it is no Parquet file.
        OSError: if it cannot be read.
    """
    try:
        # It is large, and only who publishes such a file needs it.
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise NotSupported(
            f"publishing from {str(path)!r} without pyarrow", 'pip install "qframe[spark]"'
        ) from None
    number = 0
    for file in _files(path):
        try:
            with file.open("rb") as source, parquet.ParquetFile(source) as opened:
                for batch in opened.iter_batches(ROWS):
                    for row in batch.to_pylist(maps_as_pydicts="strict"):
                        number += 1
                        yield number, row
        except arrow.ArrowException as error:
            raise BadOption(
                "file", str(file), f"it is not a Parquet file ({error})", "name a Parquet file"
            ) from None


def _files(path: Path) -> list[Path]:
    """The file itself, or those of a folder as Spark writes it, by name."""
    if not path.is_dir():
        return [path]
    return sorted(
        each for each in path.rglob(f"*{PARQUET}") if not each.name.startswith(("_", "."))
    )
