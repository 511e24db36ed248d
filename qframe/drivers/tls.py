"""TLS: files that a URL names, and the meaning of a failure."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

FILES: Final = "name PEM files that this user may read"
# The `what` and `remedy` of a `StoreUnavailable`, by what drivers say, in lower case.
_UNTRUSTED: Final[Mapping[str, str]] = {
    "what": "shows a certificate that is not trusted",
    "remedy": "name in the URL the file of the authority that has signed it, and the host that it "
    "is for; or renew it",
}
_STRANGE: Final[Mapping[str, str]] = {
    "what": "does not accept this client's TLS",
    "remedy": "name in the URL a client certificate that it trusts, and that has not expired",
}
_PLAIN: Final[Mapping[str, str]] = {
    "what": "does not speak TLS",
    "remedy": "name its port for TLS, or leave TLS out of the URL",
}
_NO_FILES: Final[Mapping[str, str]] = {"what": "cannot be reached by TLS", "remedy": FILES}
_MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "certificate verify failed": _UNTRUSTED,
    "does not match host name": _UNTRUSTED,
    "certificate file": _NO_FILES,
    "private key file": _NO_FILES,
    "requires a valid client certificate": _STRANGE,
    "alert certificate": _STRANGE,
    "alert_certificate": _STRANGE,
    "alert unknown ca": _STRANGE,
    "alert_unknown_ca": _STRANGE,
    "eof occurred in violation of protocol": _STRANGE,
    "wrong version number": _PLAIN,
    "server does not support ssl": _PLAIN,
    "server doesn't support": _PLAIN,
}


def meaning_of(text: str) -> Mapping[str, str]:
    """The `what` and `remedy` of a `StoreUnavailable`, if a driver's error is one of TLS."""
    lower = text.lower()
    return next((meaning for part, meaning in _MEANINGS.items() if part in lower), {})


def fault_of(
    trusted: str | None, certificate: str | None, key: str | None, password: str | None = None
) -> str | None:
    """Why files cannot be used for TLS; None if they can.

    Args:
        trusted: the certificates of authorities.
        certificate: the client's own.
        key: its key, if that is in another file.
        password: of the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    name = trusted
    try:
        if trusted is not None:
            context.load_verify_locations(trusted)
        if certificate is not None:
            name = certificate if key is None else f"{certificate} with {key}"
            # Without any password at all, a terminal would be asked for it.
            context.load_cert_chain(certificate, key, password or "")
    except OSError as error:
        return f"{name} cannot be used ({error.strerror or error})"
    return None
