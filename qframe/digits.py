"""Numbers as people write them: in ASCII digits.

`int` and `float` take more than that: `1_000`, digits of all scripts, blanks and line ends. A text
with those is more likely a mistake, and other programs read it differently.
"""

from __future__ import annotations

import re
from typing import Final

_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?(e-?[0-9]{1,3})?")


def whole_number(text: str) -> int:
    """The whole number that a text of up to 18 digits is.

    Raises:
        ValueError: if it is not one.
    """
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a whole number in the digits 0 to 9")
    return int(text)


def decimal_number(text: str) -> float:
    """The number that a text is, such as `30`, `0.5` or `1e-3`.

    Raises:
        ValueError: if it is not one.
    """
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a number in the digits 0 to 9")
    return float(text)
