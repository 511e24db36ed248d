"""`qframe gateway`: serves programs in any language over HTTP, until it is stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from qframe.cli.commands import BadCommand, check_beside
from qframe.cli.metrics import MetricsPort, counted
from qframe.cli.output import say, say_aside, say_error
from qframe.cli.target import Target, coordinated
from qframe.cli.times import duration_of
from qframe.cli.web import require, web_address
from qframe.errors import BadOption, QFrameError
from qframe.telemetry.logs import log_events
from qframe.topic import duration_ms
from qframe.verbs.parameters import option

SECRET_VARIABLE: Final = "QFRAME_GATEWAY_SECRET"  # noqa: S105 - the name of a variable
SHORTEST_SECRET: Final = 16


@coordinated
def gateway(
    target: Target,
    port: Annotated[
        str, option(metavar="[HOST:]PORT", help="Where programs find it.")
    ] = "127.0.0.1:8380",
    tokens: Annotated[
        Path | None, option(metavar="FILE", help="The file of tokens, with their rights.")
    ] = None,
    address: Annotated[
        str, option(metavar="URL", help="How clients and other gateways reach this one.")
    ] = "",
    tls_cert: Annotated[
        Path | None, option(metavar="FILE", help="The certificate chain, for TLS.")
    ] = None,
    tls_key: Annotated[Path | None, option(metavar="FILE", help="The certificate's key.")] = None,
    idle: Annotated[
        str,
        option(metavar="DURATION", help="How long it stays in a group that nobody pulls from."),
    ] = "30s",
    grace: Annotated[
        str, option(metavar="DURATION", help="How long it waits for settlements at its end.")
    ] = "10s",
    max_request: Annotated[
        int, option(metavar="BYTES", help="The largest request.", least=1024)
    ] = 8 * 2**20,
    metrics_port: MetricsPort = None,
    sqs: Annotated[bool, option("--sqs", help="Serve clients of SQS too.")] = False,
    sqs_region: Annotated[
        str | None,
        option(metavar="NAME", help="The region in the ARNs of queues: us-east-1."),
    ] = None,
    sqs_account: Annotated[
        str | None,
        option(metavar="DIGITS", help="The account in the ARNs of queues: 000000000000."),
    ] = None,
    new_token: Annotated[
        bool, option("--new-token", help="Print a new token and its hash, and end.")
    ] = False,
) -> None:
    """Serves programs in any language over HTTP.

    They publish, pull and settle.

    Without a file of tokens it is open to programs on this machine alone. Gateways that have the
    same QFRAME_GATEWAY_SECRET pass settlements on to each other.
    """
    require("gateway", "web")
    # Loaded here, since no other command needs them, and they are an extra.
    from qframe.web.gateway.callers import new_token as make_token

    if new_token:
        token, digest = make_token()
        say(f"token: {token}")
        say(f"hash:  {digest}")
        return
    where = web_address(
        port, is_guarded=tokens is not None, danger="publish and consume",
        remedy="give a file of --tokens, or serve 127.0.0.1",
    )  # fmt: skip
    if (tls_cert is None) != (tls_key is None):
        raise BadCommand(
            "--tls-cert", str(tls_cert or ""), "it goes with --tls-key", "give both, or none"
        )
    if not sqs:
        places = {"--sqs-region": sqs_region, "--sqs-account": sqs_account}
        check_beside("gateway", "no --sqs", places, "add --sqs")
    if address:
        _check_address(address)
    secret = _secret()
    if secret is not None and not address and not where.is_local:
        raise BadOption(
            "--address", address, f"{SECRET_VARIABLE} has other gateways pass settlements on to "
            "this one, and they cannot tell where it is",
            "give the URL by which they reach it, such as http://10.0.0.7:8380",
        )  # fmt: skip
    from qframe.clock import SYSTEM_CLOCK
    from qframe.web.gateway.callers import Callers
    from qframe.web.gateway.forwarding import Forwarder
    from qframe.web.gateway.gateway import Gateway
    from qframe.web.gateway.routes import GatewayRoutes
    from qframe.web.gateway.serving import serve
    from qframe.web.gateway.sqs import Place, SqsFront

    here = where.url("http" if tls_cert is None else "https")
    with target.opened(creating=True) as app:
        callers = Callers(tokens, clock=SYSTEM_CLOCK, events=app.events)
        served = Gateway(
            app, address=address or ("" if where.is_everywhere else here), secret=secret,
            groups=callers.groups, idle_s=duration_ms(duration_of(idle), "--idle") / 1000,
        )  # fmt: skip
        forwarder = Forwarder(served.receipts)
        front = None
        if sqs:
            given = {"region": sqs_region, "account": sqs_account}
            place = Place(**{name: value for name, value in given.items() if value is not None})
            front = SqsFront(served, callers, forwarder, place=place, most_bytes=max_request)
        routes = GatewayRoutes(
            served, callers, forwarder, most_bytes=max_request,
            others=[] if front is None else front.routes(),
        )  # fmt: skip
        stop = log_events(app.events, app.settings, level="info")

        def say_where() -> None:
            say_aside(f"the gateway is at {here}/")
            try:
                app.store.now_ms()
            except QFrameError as error:
                say_error(f"{error}; until then requests are refused with 503")

        try:
            with counted([app], port=metrics_port, folder=None, number=0):
                serve(
                    routes.starlette(), served, host=where.bound, port=where.port,
                    grace_s=duration_ms(duration_of(grace), "--grace") / 1000,
                    cert=None if tls_cert is None else str(tls_cert),
                    key=None if tls_key is None else str(tls_key), on_ready=say_where,
                )  # fmt: skip
        finally:
            stop()


def _secret() -> str | None:
    """The secret that gateways share.

    Raises:
        BadOption: if it is short enough to be guessed by a client, whose receipts are signed by it.
    """
    secret = os.environ.get(SECRET_VARIABLE) or None
    if secret is not None and len(secret.encode("utf-8", "replace")) < SHORTEST_SECRET:
        raise BadOption(
            SECRET_VARIABLE, "***", f"it is shorter than {SHORTEST_SECRET} bytes",
            "make one for all gateways: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )  # fmt: skip
    return secret


def _check_address(address: str) -> None:
    """Checks that an address can be asked: it is in receipts, and tokens are sent there.

    Raises:
        BadOption: if it is none.
    """
    try:
        url = urlsplit(address)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if not is_url or not address.isascii() or url.query or url.fragment:
        raise BadOption(
            "--address", address, "it is no URL of a web server",
            "give one such as http://10.0.0.7:8380",
        )  # fmt: skip
