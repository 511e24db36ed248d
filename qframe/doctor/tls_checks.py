"""The check of what a URL asks of TLS: whether it makes sure of the server that answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from qframe.doctor.findings import Finding
from qframe.drivers.dialect import Options
from qframe.drivers.dialects import DIALECTS
from qframe.drivers.tls import AUTHORITY

HERE: Final = ("localhost", "127.0.0.1", "::1")


def unchecked(url: str) -> Finding | None:
    """The URL has a server on another machine show its certificate, and checks that."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower().partition("+")[0]
    options = dict(parse_qsl(parts.query))
    places = (parts.netloc.rpartition("@")[2] or options.get("host", "")).split(",")
    hosts = [urlsplit(f"//{place}").hostname or "" for place in places]
    elsewhere = [host for host in hosts if host and host not in HERE]
    if not elsewhere:  # such as a file's
        return None
    is_checked, remedy = _WAYS[scheme]
    if is_checked(options):
        return None
    return Finding(
        check="tls", level="note",
        what=f"what goes to {', '.join(elsewhere)} may be read on its way, or answered by another "
        "server: the URL does not ask for TLS that checks the certificate",
        remedy=f"{remedy}; see TLS in docs/configuration.md",
    )  # fmt: skip


def _by_default(options: Options) -> bool:
    return options.get("ssl_cert_reqs") != "none"


def _never(_: Options) -> bool:
    return False


_TURNED_OFF: Final = (_by_default, f"name {AUTHORITY} (ssl_ca_certs=…), without ssl_cert_reqs=none")
# By scheme: what checks, by a URL's options, and the remedy where nothing does.
_WAYS: Final[Mapping[str, tuple[Callable[[Options], bool], str]]] = {
    "redis": (_never, f"write rediss://, and name {AUTHORITY} (ssl_ca_certs=…)"),
    "rediss": _TURNED_OFF,
    "zookeeper": (_never, f"write zookeepers://, and name {AUTHORITY} (ssl_ca_certs=…)"),
    "zookeepers": _TURNED_OFF,
    **{dialect.name: (dialect.checks_server, dialect.tls_remedy) for dialect in DIALECTS},
}
