"""Takes credentials out of texts that people will read."""

from __future__ import annotations

import re
from typing import Final

_USER_INFO: Final = re.compile(r"(?<=://)[^\s'\"]*@")
_PARAMETER: Final = re.compile(
    r"(?i)(?<![a-z0-9])(password|passwd|pwd|passfile|secret|token|auth)(\s*[=:]\s*)[^\s&;,'\"]+"
)


def redacted(text: str) -> str:
    """The text without what a URL in it says before its `@`, or gives as a password.

    The whole of `user:password` goes, since Redis takes a password without a user, and everything
    up to the last `@`, since people forget to quote that in passwords.
    """
    return _PARAMETER.sub(r"\1\2***", _USER_INFO.sub("***@", text))
