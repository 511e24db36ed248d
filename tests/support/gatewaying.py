"""Gateways under test: real processes, and requests to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Self

from eventually import eventually
from ports import HOST, free_port, give_back

JSON = {"content-type": "application/json"}


class Reply:
    """The reply to a request."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class GatewayClient:
    """Sends requests to a gateway, each on a connection of its own unless it is `kept`."""

    def __init__(self, port: int, **headers: str) -> None:
        self.port = port
        self.headers = headers

    def request(
        self, method: str, path: str, body: Any = None, timeout_s: float = 60, **headers: str
    ) -> Reply:
        sent = {**self.headers, **{name.replace("_", "-"): each for name, each in headers.items()}}
        if body is not None and not isinstance(body, bytes):
            body, sent = json.dumps(body).encode(), {**JSON, **sent}
        connection = HTTPConnection(HOST, self.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, sent)
            got = connection.getresponse()
            found = {name.lower(): value for name, value in got.getheaders()}
            return Reply(got.status, found, got.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.request("POST", path, body, **headers)

    def pull(self, topic: str, group: str, **asked: Any) -> list[dict[str, Any]]:
        reply = self.post(f"/v1/topics/{topic}/groups/{group}/pull", asked)
        assert reply.status == 200, reply.body
        found: list[dict[str, Any]] = reply.json["deliveries"]
        return found

    def settle(self, topic: str, group: str, **wanted: Any) -> Reply:
        return self.post(f"/v1/topics/{topic}/groups/{group}/settle", wanted)


class GatewayProcess(GatewayClient):
    """`qframe gateway` as a process."""

    def __init__(self, folder: Path, store: str, *flags: str, **variables: str) -> None:
        super().__init__(free_port())
        self.url = f"http://{HOST}:{self.port}"
        self.log = folder / f"gateway-{self.port}.log"
        env = {name: each for name, each in os.environ.items() if not name.startswith("QFRAME_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "qframe", "gateway", "--store", store,
                 "--port", f"{HOST}:{self.port}", *flags],
                cwd=folder, env={**env, **variables}, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            eventually(self._is_up, within=60)
        except BaseException:
            self.kill()
            raise

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
        with suppress(OSError, HTTPException):
            return self.request("GET", "/livez").status == 200
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        give_back(self.port)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        give_back(self.port)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


@contextmanager
def gateways(folder: Path, store: str, count: int, **variables: str) -> Iterator[list[Any]]:
    """Several gateways on one store, with one secret."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(GatewayProcess(folder, store, **variables)) for _ in range(count)
        ]
