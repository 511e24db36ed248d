"""Has moto's `test_server.py`, which starts a server of moto's own, ask the one under test."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urljoin

import moto.server
import requests


class _Response:
    """A response as the test client of a Flask app returns it."""

    def __init__(self, response: requests.Response) -> None:
        self.data = response.content
        self.status_code = response.status_code


class _Client:
    """A client that asks the server under test."""

    def __init__(self) -> None:
        self._endpoint = os.environ["TEST_SERVER_MODE_ENDPOINT"]
        requests.post(f"{self._endpoint}/moto-api/reset", timeout=30)

    def get(self, path: str = "/", **options: Any) -> _Response:
        return self.post(path, **options)  # by GET the front changes nothing

    def post(self, path: str = "/", **options: Any) -> _Response:
        return _Response(requests.post(urljoin(self._endpoint, path), timeout=60, **options))


class _Backend:
    """An app whose test client is that one."""

    def test_client(self) -> _Client:
        return _Client()


moto.server.create_backend_app = lambda _service: _Backend()
