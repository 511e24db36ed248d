"""What clients of console and gateway say of themselves, and who is believed."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from qframe.web.access import is_local, is_same_origin, is_sent_by_page


def _request(**headers: str) -> Request:
    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/", "client": ("127.0.0.1", 1),
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ],
    }  # fmt: skip
    return Request(scope)


@pytest.mark.parametrize("host", ["[", "[::1", "a[b]", "", "evil.example", "127.0.0.1.example"])
def test_a_name_that_is_not_this_machines_is_not_local(host: str) -> None:
    assert not is_local(_request(host=host))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8380", "[::1]:8380"])
def test_a_name_of_this_machine_is_local(host: str) -> None:
    assert is_local(_request(host=host))


@pytest.mark.parametrize(
    ("headers", "by_page"),
    [
        ({}, False),
        ({"sec_fetch_site": "same-origin"}, False),
        ({"sec_fetch_site": "none"}, True),  # a link in a mail, or an address that was typed
        ({"sec_fetch_site": "cross-site"}, True),
        ({"origin": "null"}, True),
    ],
)
def test_a_program_is_no_browser(headers: dict[str, str], by_page: bool) -> None:
    assert is_sent_by_page(_request(**headers)) is by_page


@pytest.mark.parametrize("origin", ["http://[", "http://", "null", "https://evil.example"])
def test_an_origin_that_is_none_is_not_the_same(origin: str) -> None:
    assert not is_same_origin(_request(origin=origin, host="console.example"))
