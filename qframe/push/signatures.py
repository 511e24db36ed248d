"""Signatures of Standard Webhooks: HMAC-SHA256 of id, time and body."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Final

from qframe.errors import BadOption

PREFIX: Final = "whsec_"
SHORTEST, LONGEST = 24, 64
"""How many bytes a secret has, as the specification says."""


def secrets_of(given: str | Iterable[str]) -> list[bytes]:
    """The bytes of secrets, each `whsec_` and base64; a text may hold several, parted by blanks.

    Raises:
        BadOption: if there is none, or one is not such a text. The error does not show it.
    """
    texts = given.split() if isinstance(given, str) else list(given)
    if not texts:
        raise BadOption(
            "secret", "", "there is none", "name one, whsec_ and 24 to 64 bytes in base64"
        )
    return [_secret(text) for text in texts]


def _secret(text: str) -> bytes:
    try:
        secret = b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if not text.startswith(PREFIX) or not SHORTEST <= len(secret) <= LONGEST:
        raise BadOption(
            "secret", "…", f"it is not {PREFIX} and {SHORTEST} to {LONGEST} bytes in base64",
            "make one: python -c \"import base64, secrets; "
            "print('whsec_' + base64.b64encode(secrets.token_bytes(32)).decode())\"",
        )  # fmt: skip
    return secret


def signature(secrets: Sequence[bytes], message_id: str, at_s: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each secret, parted by blanks."""
    content = f"{message_id}.{at_s}.".encode() + body
    return " ".join(
        "v1," + b64encode(hmac.digest(secret, content, "sha256")).decode() for secret in secrets
    )
