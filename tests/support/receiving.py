"""A receiver of pushed messages under test, and the secrets that they are signed with."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook

from qframe import Backoff

OLD, NEW, OTHER = (
    "whsec_" + base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3)
)
QUICK = Backoff(first=0.02, cap=0.05)

Answer = tuple[int, dict[str, str]]


class Receiver:
    """A web server that keeps what it was sent, and answers as a test says."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.wrong: list[Exception] = []
        self.answer: Callable[[dict[str, str], bytes], Answer] = lambda headers, body: (204, {})
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.got.append((headers, body))
                receiver.verify(headers, body)
                status, more = receiver.answer(headers, body)
                self.send_response(status)
                for name, value in {"content-length": "0", **more}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.shown = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.shown}/hook?token=hidden"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))

    def verify(self, headers: dict[str, str], body: bytes) -> None:
        """Has the library of Standard Webhooks look at a request; it knows JSON alone."""
        if headers["content-type"] != "application/octet-stream":
            try:
                Webhook(OLD).verify(body, headers)
            except Exception as error:
                self.wrong.append(error)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
        assert not self.wrong
