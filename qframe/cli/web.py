"""The address of the commands that serve the web, and the check that their extra is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, NamedTuple

from qframe.errors import BadOption
from qframe.http_port import address_of

EXTRAS: Final = {"push": ("httpcore2",), "web": ("starlette", "jinja2", "uvicorn")}
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_EVERY: Final = "0.0.0.0"  # noqa: S104 - the command refuses it unless it is guarded
_ALL_HOSTS: Final = (_EVERY, "::")


class WebAddress(NamedTuple):
    """An address to serve.

    Attributes:
        host: the host, or its address; empty for all of this machine's.
        port: the port.
    """

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether it is of this machine alone."""
        return self.host in _LOOPBACK

    @property
    def is_everywhere(self) -> bool:
        """Whether it is of all addresses of this machine, so that its URL is no other machine's."""
        return self.host in (*_ALL_HOSTS, "")

    @property
    def bound(self) -> str:
        """The host as a server binds it."""
        return self.host or _EVERY

    def url(self, scheme: str = "http") -> str:
        """The URL by which this machine reaches it, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host or "127.0.0.1"
        return f"{scheme}://{host}:{self.port}"


def web_address(port: str, *, is_guarded: bool, danger: str, remedy: str) -> WebAddress:
    """The address that `--port` names: a port alone is one of this machine alone.

    Args:
        port: as it was given, [HOST:]PORT.
        is_guarded: whether visitors from other machines have to say who they are.
        danger: what they could do otherwise.
        remedy: how the command is told to guard it.

    Raises:
        BadOption: if it names no port, or one that other machines reach and nothing guards.
    """
    address = WebAddress(*address_of("--port", port if ":" in port else f"127.0.0.1:{port}"))
    if not address.port:
        why = "nobody could tell which port that is"
        raise BadOption("--port", port, why, "name one from 1 to 65535")
    if not address.is_local and not is_guarded:
        raise BadOption("--port", port, f"whoever reaches this address could {danger}", remedy)
    return address


def require(command: str, extra: str) -> None:
    """Sees that the packages of a command's extra are installed.

    Raises:
        BadOption: if one is not; it names that one.
    """
    for package in EXTRAS[extra]:
        if find_spec(package) is None:
            raise BadOption(
                command, package, "this package is missing", f"pip install 'qframe[{extra}]'"
            )
