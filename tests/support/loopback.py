"""No test reaches beyond loopback: whatever Python connects or sends to is looked at first.

Python tells an audit hook of each connection, datagram and name before it is sent or asked for. The
hook is there in the processes of the tests, and in each Python that these start: they import
`sitecustomize` at their start, which is found by `PYTHONPATH` in the folder `guarded`.
"""

from __future__ import annotations

import errno
import os
import sys

GUARDED = f"{os.path.dirname(__file__)}/guarded"  # noqa: PTH120 - each program of a test loads this
LOCAL_NAMES = ("", "localhost", "ip6-localhost", os.uname().nodename)

refused: list[str] = []
"""What this process was not let connect to, since somebody has last looked."""


class BeyondLoopback(OSError):
    """Raised in place of a connection to another machine; the product takes it for one away."""


def guard() -> None:
    """Lets this process, and each Python that it starts, reach nothing but loopback."""
    sys.addaudithook(_look)
    paths = [GUARDED, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def is_local(host: str | bytes | None) -> bool:
    """Whether an address, or a name that is not looked up, is of this machine alone."""
    import ipaddress

    name = host.decode() if isinstance(host, bytes) else host or ""
    if name.rstrip(".").lower() in LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified  # a connection to 0.0.0.0 stays here


def _look(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        _, address = arguments
        # Other kinds of addresses are texts, as of a file, or begin with a number.
        if isinstance(address, tuple) and isinstance(address[0], str) and not is_local(address[0]):
            refused.append(f"{address[0]}:{address[1]}")
            raise BeyondLoopback(errno.ENETUNREACH, f"a test may not reach {address[0]}")
    elif event == "socket.getaddrinfo" and not _is_literal(arguments[0]):
        import socket

        raise socket.gaierror(socket.EAI_NONAME, f"a test may not look up {arguments[0]!r}")


def _is_literal(host: object) -> bool:
    """Whether nobody has to be asked for an address."""
    import ipaddress

    name = host.decode() if isinstance(host, bytes) else str(host or "")
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return is_local(name)
    return True
