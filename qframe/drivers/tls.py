"""TLS: files that a URL names, and the meaning of a failure."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple


class TlsOptions(NamedTuple):
    """The names of a URL's options for the files of TLS."""

    trusted: str
    certificate: str
    key: str
    password: str


class TlsFault(NamedTuple):
    """Why files cannot be used for TLS, and what to do."""

    why: str
    remedy: str


OF_REDIS: Final = TlsOptions("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password")
OF_POSTGRES: Final = TlsOptions("sslrootcert", "sslcert", "sslkey", "sslpassword")
OF_MARIADB: Final = TlsOptions("ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password")

AUTHORITY: Final = "the file of the authority that has signed the server's certificate"
ENDED: Final = "eof occurred in violation of protocol"
FILES: Final = "name PEM files that this user may read"
NO_FILES: Final[Mapping[str, str]] = {"what": "cannot be reached by TLS", "remedy": FILES}
_NOT_TRUSTED: Final = "shows a certificate that is not trusted"
_NOT_ACCEPTED: Final = "does not accept this client's TLS"
_KEY: Final = "name the key to which the certificate belongs in {key}="
# The `what` and `remedy` of an error, by what drivers say in lower case; the first one counts.
_UNTRUSTED: Final[Mapping[str, str]] = {
    "what": _NOT_TRUSTED,
    "remedy": "name in the URL the file of the authority that has signed it ({trusted}=…), and the "
    "host that it is for; or renew it",
}
_NOT_ITS_HOST: Final[Mapping[str, str]] = {
    "what": _NOT_TRUSTED,
    "remedy": "name in the URL the host that it is for, or add this one to it",
}
_STRANGE: Final[Mapping[str, str]] = {
    "what": _NOT_ACCEPTED,
    "remedy": "name in the URL a client certificate that it trusts, and that has not expired "
    "({certificate}=…, {key}=…)",
}
_PLAIN: Final[Mapping[str, str]] = {
    "what": "does not speak TLS",
    "remedy": "name its port for TLS, or leave TLS out of the URL",
}
_MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "certificate has expired": {
        "what": "shows a certificate that has expired", "remedy": "renew the server's certificate",
    },
    "certificate is not yet valid": {
        "what": _NOT_TRUSTED, "remedy": "set this machine's clock, or wait until it is valid",
    },
    "mismatch, certificate is not valid for": _NOT_ITS_HOST,
    "does not match host name": _NOT_ITS_HOST,
    "certificate verify failed": _UNTRUSTED,
    "key values mismatch": {**NO_FILES, "remedy": _KEY},
    "bad decrypt": {**NO_FILES, "remedy": "name the key's password in {password}="},
    "has group or world access": {**NO_FILES, "remedy": "let nobody else read it: chmod 600"},
    "not private key file": {**NO_FILES, "remedy": _KEY},
    "certificate file": NO_FILES,
    "private key file": NO_FILES,
    "certificate authentication failed": {
        "what": _NOT_ACCEPTED,
        "remedy": "name a client certificate of this user ({certificate}=…), or the user that it "
        "is for",
    },
    "requires a valid client certificate": _STRANGE,
    "alert certificate": _STRANGE,
    "alert bad certificate": _STRANGE,
    "alert_certificate": _STRANGE,
    "alert unknown ca": _STRANGE,
    "alert_unknown_ca": _STRANGE,
    ENDED: {  # it was killed, refuses a certificate without a word, or speaks no TLS there
        "what": "breaks off TLS",
        "remedy": "check that it runs, and that it trusts the URL's client certificate "
        "({certificate}=…, {key}=…)",
    },
    "wrong version number": _PLAIN,
    "server does not support ssl": _PLAIN,
    "server doesn't support": _PLAIN,
}  # fmt: skip


def meaning_of(text: str, options: TlsOptions) -> Mapping[str, str]:
    """The `what` and `remedy` of an error of a store, if a driver's error is one of TLS."""
    lower = text.lower()
    found: Mapping[str, str] = next((it for part, it in _MEANINGS.items() if part in lower), {})
    return {name: value.format(**options._asdict()) for name, value in found.items()}


def fault_of(
    trusted: str | None, certificate: str | None, key: str | None, password: str | None = None
) -> TlsFault | None:
    """Why files cannot be used for TLS; None if they can.

    Args:
        trusted: the certificates of authorities.
        certificate: the client's own.
        key: its key, if that is in another file.
        password: of the key.
    """
    if certificate is None and key is not None:
        return TlsFault(f"it names the key {key} without its certificate", "name both, or none")
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
        why, remedy = error.strerror or str(error), FILES
        if certificate is not None and name != trusted and isinstance(error, ssl.SSLError):
            why, remedy = _fault_of_pair(certificate, key or certificate, password) or (why, remedy)
        return TlsFault(f"{name} cannot be used ({why})", remedy)
    return None


def _fault_of_pair(certificate: str, key: str, password: str | None) -> TlsFault | None:
    """The fault of two files that can be read, of which OpenSSL says little."""
    made, secret = (Path(each).read_text("ascii", "replace") for each in (certificate, key))
    if "-----BEGIN CERTIFICATE-----" not in made:
        return TlsFault(f"there is no certificate in {certificate}", FILES)
    if "PRIVATE KEY-----" not in secret:
        return TlsFault(f"there is no private key in {key}", "name the file of the key, too")
    if "ENCRYPTED" in secret:
        why = "the key has another password" if password else "the key has a password"
        return TlsFault(why, "name its password in the URL, or a key without one")
    return TlsFault("the key is not that of the certificate", "name the key that belongs to it")
