"""Takes credentials out of URLs and texts that people will read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from qframe.errors import BadUrl

STARS: Final = "***"

# Literal examples stay as they are, since errors give them as remedies.
_USER_INFO: Final = re.compile(r"(?<=://)(?!user(?::password)?@host)[^\s'\"]*@")
_NAMES: Final = r"(?i)(?<![a-z0-9])(password|passwd|pwd|passfile|secret|token|auth)"
_PARAMETER: Final = re.compile(rf"{_NAMES}(\s*=\s*)[^\s&;,'\"]+")
# MySQL says "(using password: YES)", which is no password.
_SPOKEN: Final = re.compile(rf"{_NAMES}(\s*:\s*)(?!(?:YES|NO)\b)[^\s&;,'\")\]}}]+")
_BAD_PORT: Final = re.compile(r":[^\]:,]*[^\]:,\d][^\]:,]*(?=,|$)")


def redacted(text: str) -> str:
    """The text without what a URL in it says before its `@`, or gives as a password.

    The whole of `user:password` goes, since Redis takes a password without a user, and everything
    up to the last `@`, since people forget to quote that in passwords.
    """
    text = _PARAMETER.sub(r"\1\2***", _USER_INFO.sub("***@", text))
    return _SPOKEN.sub(r"\1\2***", text)


def without_hidden(value: Any, redact: Callable[[str], bool]) -> Any:
    """A decoded body without what is not shown of it.

    Args:
        value: the body, or a part of it.
        redact: says by its name whether the value of a field is hidden.
    """
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [without_hidden(item, redact) for item in value]
    if isinstance(value, Mapping):
        return {
            name: STARS if redact(str(name)) else without_hidden(field, redact)
            for name, field in value.items()
        }
    return value


def shown_url(url: str) -> str:
    """A URL without options, and without what may be a password, however badly it is written."""
    scheme, sign, rest = url.partition("://")
    if not sign:
        scheme, rest = "", url
    hidden, at, rest = rest.rpartition("@")
    place = rest.partition("?")[0]
    hosts, slash, path = place.partition("/")
    if not at:
        hosts = _BAD_PORT.sub(":***", hosts)
    return f"{scheme}{sign}" + "***" * bool(hidden) + at + hosts + slash + path


def check_user_info(url: str) -> None:
    """Refuses a URL of which a user or password has an `@`, `/`, `?` or `#` that is not encoded.

    Text after such a sign would be taken for a host or a path, and be shown.

    Raises:
        BadUrl: if it is so. No part of a password is in the message.
    """
    rest = url.partition("://")[2]
    end = min((rest.find(sign) for sign in "/?#" if sign in rest), default=len(rest))
    hosts, behind = rest[:end], rest[end:]
    path, _, options = behind.partition("?")
    if hosts.count("@") > 1:
        why = "there are two @ before the host"
    elif "@" in path or ("@" in options and "=" not in options.partition("@")[0]):
        why = "there is an @ after the host"
    else:
        return
    raise BadUrl(
        "store", shown_url(url), why,
        "in a user or a password write %40 for @, %2F for /, %3F for ?, %23 for #",
    )  # fmt: skip
