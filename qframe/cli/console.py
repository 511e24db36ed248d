"""`qframe console`: serves the console to browsers, until it is stopped."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Annotated, Final

from qframe.cli.modules import apps_of
from qframe.cli.output import say_aside
from qframe.cli.target import Target, coordinated
from qframe.cli.web import require, web_address
from qframe.telemetry.logs import log_events
from qframe.verbs.parameters import argument, option

TOKEN_VARIABLE: Final = "QFRAME_CONSOLE_TOKEN"  # noqa: S105 - the name of a variable


@coordinated
def console(
    target: Target,
    modules: Annotated[
        list[str] | None,
        argument("MODULE", "Modules whose outboxes are shown too."),
    ] = None,
    port: Annotated[
        str, option(metavar="[HOST:]PORT", help="Where browsers find it.")
    ] = "127.0.0.1:8370",
    role: Annotated[
        str,
        option(metavar="ROLE", help="Of all visitors: viewer, reader, operator or owner."),
    ] = "reader",
    user_header: Annotated[
        str | None,
        option(metavar="NAME", help="The header in which a proxy names who it let in."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        option(metavar="ADDRESS", help="A proxy, or network of proxies, to be believed."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        option(metavar="NAME", help="A name by which browsers call it, behind a proxy."),
    ] = None,
    prefix: Annotated[
        str, option(metavar="PATH", help="The path under which a proxy shows it.")
    ] = "",
    environment: Annotated[
        str, option(metavar="NAME", help="A badge on each page, such as production.")
    ] = "",
) -> None:
    """Serves the console, pages of the store for browsers.

    They change it as far as the role may. Without a token they are open to this machine alone.
    QFRAME_CONSOLE_TOKEN holds a token that visitors have to type in; any other address than this
    machine's needs that, or the word of a proxy.
    """
    require("console", "web")
    token = os.environ.get(TOKEN_VARIABLE) or None
    address = web_address(
        port, is_guarded=token is not None or user_header is not None,
        danger="look into the store",
        remedy=f"set {TOKEN_VARIABLE}, or name --user-header of a proxy, or serve 127.0.0.1",
    )  # fmt: skip
    checks_host = bool(allowed_host) or user_header is not None
    # Loaded here, since few other commands need them, and they are an extra.
    import uvicorn

    from qframe.web import console as console_of
    from qframe.web.gateway.serving import TimedConnection, bound_socket

    outboxes = [outbox for each in apps_of(modules) for outbox in each.outboxes] if modules else []
    with target.opened() as app:
        served = console_of(
            app, role=role, user_header=user_header, proxies=proxy or (), token=token,
            prefix=prefix, environment=environment, outboxes=outboxes,
            allowed_hosts=[*(allowed_host or ()), address.bound] if checks_host else (),
        )  # fmt: skip
        stop = log_events(app.events, app.settings, level="info")
        config = uvicorn.Config(
            served, log_level="warning", access_log=False, proxy_headers=False,
            server_header=False, lifespan="off", http=TimedConnection,
        )  # fmt: skip
        # Uvicorn raises the signal that has ended it once more: what it meets then ends the block.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with bound_socket(address.bound, address.port) as bound, suppress(KeyboardInterrupt):
                say_aside(f"the console is at {address.url()}{prefix}/")
                uvicorn.Server(config).run(sockets=[bound])
        finally:
            signal.signal(signal.SIGTERM, before)
            stop()
