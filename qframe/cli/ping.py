"""`qframe ping`: asks a worker how it is; `qframe_ping` does the same without loading qframe."""

from __future__ import annotations

from typing import Annotated

from click.exceptions import Exit

import qframe_ping
from qframe.verbs.parameters import option


def ping(
    port: Annotated[
        str | None,
        option(
            metavar="PORT",
            help=f"The worker's --health-port. [{qframe_ping.PORT_VARIABLE}]",
        ),
    ] = None,
    file: Annotated[
        str | None,
        option(
            metavar="FILE",
            help=f"The worker's --health-file. [{qframe_ping.FILE_VARIABLE}]",
        ),
    ] = None,
    ready: Annotated[
        bool, option("--ready", help="Ask whether it is ready, not only live.")
    ] = False,
    timeout: Annotated[
        float, option(metavar="SECONDS", help="How long to wait for its reply.")
    ] = 2.0,
) -> None:
    """Asks a worker on this machine how it is.

    Exits with 0 if it is live, with 1 if not: for Docker, ECS and the like.
    """
    raise Exit(qframe_ping.run(port, file, ready=ready, timeout=timeout))
