"""The extras of qframe: packages that a part of it needs and that not everybody has installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed(extra: str, part: str) -> Iterator[None]:
    """Imports in its block what an extra brings.

    Args:
        extra: its name, as in `pip install 'qframe[web]'`.
        part: the module that needs it.

    Raises:
        ModuleNotFoundError: if a package is missing; it names the package and the extra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "qframe":
            raise
        raise ModuleNotFoundError(
            f"{part} needs the package {package}, which is not installed; "
            f"pip install 'qframe[{extra}]'",
            name=error.name,
        ) from error
