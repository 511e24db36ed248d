"""Parameters of an address: one that nothing reads is refused, since somebody relies on it."""

from __future__ import annotations

from collections.abc import Collection

from starlette.requests import Request

from qframe.options.rules import refuse_unknown


def check_parameters(
    request: Request, known: Collection[str] = (), *, own: Collection[str] = ()
) -> None:
    """Refuses parameters other than the known ones.

    Args:
        request: the request.
        known: the names that anybody may use.
        own: further names, which only links of the page itself have.

    Raises:
        BadOption: if there is one. It names the known ones.
    """
    for name in request.query_params:
        if name not in known and name not in own:
            refuse_unknown("parameter", name, known)
