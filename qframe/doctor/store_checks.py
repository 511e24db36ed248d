"""Which stores are opened by other distributions."""

from __future__ import annotations

from collections.abc import Iterator

from qframe.doctor.findings import Finding
from qframe.stores.open import OWN
from qframe.stores.registered import distribution_of, registered


def is_registered(scheme: str) -> bool:
    """Whether another distribution opens the store."""
    return scheme not in OWN and bool(registered(scheme))


def not_opened(scheme: str) -> Iterator[Finding]:
    """No other distribution registers the store's scheme, if that is one of qframe's own."""
    for entry in registered(scheme) if scheme in OWN else ():
        yield Finding(
            check="registered", level="note",
            what=f"{distribution_of(entry)} registers the scheme {scheme}, which is qframe's own: "
            "its store is not opened",
            remedy="uninstall it, or use a scheme of its own",
        )  # fmt: skip
