"""Names of headers that qframe writes itself, and believes: no client may give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qframe.errors import BadOption

OF_SQS: Final = "sqs-"
"""How the names of headers begin that say who sent a message to SQS, and where it died."""


def check_headers(headers: Mapping[str, str] | None) -> None:
    """Refuses headers that the front of SQS writes; those of `qf-` are refused to all producers.

    Raises:
        BadOption: if there is one of them.
    """
    for name in headers or ():
        if name.lower().startswith(OF_SQS):
            raise BadOption(
                "header", name, f"names that begin with {OF_SQS} are written by the front of SQS",
                "use another name",
            )  # fmt: skip
