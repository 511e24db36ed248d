"""Receipts: opaque texts that name their gateway and one handing out.

    q1.<gateway>.<its address>.<signature>.<128 random bits>

Only the gateway that made one knows what it stands for. The signature is over gateway and address:
gateways that share a secret believe each other's addresses, so nobody can have a gateway send a
request to a host of their choice.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final, NamedTuple

_RECEIPT: Final = re.compile(
    r"(q1\.([0-9a-z]{16})\.([A-Za-z0-9_-]{0,400})\.[0-9a-f]{32}\.)[\w-]{22}", re.ASCII
)
_RANDOM_BYTES: Final = 16


class ReceiptOwner(NamedTuple):
    """The gateway of a receipt.

    Attributes:
        gateway: its id.
        address: where it says that it is; empty if it does not.
        is_believed: whether it shares this gateway's secret.
    """

    gateway: str
    address: str
    is_believed: bool


class Receipts:
    """Makes receipts, and finds out whose one is.

    Args:
        address: where other gateways and clients reach this one, and no other, as a URL; empty if
            that is not known.
        secret: what this gateway shares with others; None if with nobody.
    """

    def __init__(self, address: str = "", secret: str | None = None) -> None:
        self._address = address
        self._secret = (secret or secrets.token_hex()).encode()
        self.gateway: str = secrets.token_hex(8)
        coded = urlsafe_b64encode(address.encode()).decode().rstrip("=")
        self._prefix = self._signed(self.gateway, coded)

    def new(self) -> str:
        """A receipt that was never before."""
        random = urlsafe_b64encode(os.urandom(_RANDOM_BYTES))[:22].decode()
        return self._prefix + random

    def is_receipt(self, text: str) -> bool:
        """Whether a text is a receipt, of this gateway or of another one, by its form."""
        return _RECEIPT.fullmatch(text) is not None

    def owner(self, receipt: str) -> ReceiptOwner | None:
        """The gateway of a receipt; None for this one, and for what is no receipt.

        None too for one that was at this address before: it has ended, since this one is there.
        """
        if receipt.startswith(self._prefix):
            return None
        found = _RECEIPT.fullmatch(receipt)
        if found is None:
            return None
        prefix, gateway, coded = found.groups()
        try:
            address = urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode("ascii")
        except ValueError:
            return None
        if address and address == self._address:
            return None
        believed = hmac.compare_digest(prefix, self._signed(gateway, coded))
        return ReceiptOwner(gateway, address, believed)

    def _signed(self, gateway: str, coded: str) -> str:
        named = f"q1.{gateway}.{coded}."
        return f"{named}{hmac.new(self._secret, named.encode(), sha256).hexdigest()[:32]}."
