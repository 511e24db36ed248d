"""`qframe ping`: asks a worker how it is; `qframe_ping` does the same without loading qframe."""

from __future__ import annotations

from typing import Annotated

import typer

import qframe_ping


def ping(
    port: Annotated[
        str | None,
        typer.Option(
            metavar="PORT",
            help=f"The worker's --health-port. [{qframe_ping.PORT_VARIABLE}]",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"The worker's --health-file. [{qframe_ping.FILE_VARIABLE}]",
        ),
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Ask whether it is ready, not only live.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for its reply.")
    ] = 2.0,
) -> None:
    """Asks a worker on this machine how it is.

    Exits with 0 if it is live, with 1 if not: for Docker, ECS and the like.
    """
    raise typer.Exit(qframe_ping.run(port, file, ready=ready, timeout=timeout))
