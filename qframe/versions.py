"""Applying events that come out of order to rows that bear a version."""

from __future__ import annotations

from typing import Any, NoReturn

from qframe.errors import NotSupported


def apply_if_newer(*_: Any, **__: Any) -> NoReturn:
    """Applies a change whose version or timestamp is larger than the row's; one may be skipped.

    Raises:
        NotSupported: in this version.
    """
    raise NotSupported("versions.apply_if_newer", "compare the versions in the UPDATE's WHERE")


def apply_next(*_: Any, **__: Any) -> NoReturn:
    """Applies a change whose version follows the row's, and asks for a retry where one is missing.

    Raises:
        NotSupported: in this version.
    """
    raise NotSupported("versions.apply_next", "publish with sequence= to an ordered topic")
