"""The command line of all examples: one URL, which may be left out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from qframe import QFrameError


def run(
    main: Callable[[str | None], int | None],
    about: str | None,
    url: str = "where messages are kept; a SQLite file of its own if left out",
) -> None:
    """Calls an example's `main` with the URL that was given, and exits with what it answers.

    Args:
        main: takes the URL, or None; answers the exit code if that is not 0.
        about: the example's docstring, for `--help`.
        url: what the URL says.
    """
    spec = sys.modules["__main__"].__spec__
    name = spec.name.removesuffix(".__main__") if spec else None
    parser = argparse.ArgumentParser(
        prog=name and f"python -m {name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", nargs="?", metavar="URL", help=url)
    given = parser.parse_args().url
    try:
        sys.exit(main(given))
    except QFrameError as error:
        sys.exit(f"error: {error}")
