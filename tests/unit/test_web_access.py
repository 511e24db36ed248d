"""What clients of console and gateway say of themselves, and who is believed."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from qframe.web.access import Access, is_local, is_same_origin, is_sent_by_page


def _request(client: str = "127.0.0.1", **headers: str) -> Request:
    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/", "client": (client, 1),
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


def test_without_origin_and_host_nothing_is_the_same() -> None:
    assert not is_same_origin(_request(host=""))
    assert not is_same_origin(_request(host="", origin="null"))


@pytest.mark.parametrize(
    ("client", "is_known"),
    [("127.0.0.1", True), ("10.1.2.3", True), ("", True), ("11.1.2.3", False), ("proxy", False)],
)
def test_a_proxy_is_known_by_its_address(client: str, is_known: bool) -> None:
    access = Access(
        role="reader", auth=None, user_header="x-user", proxies=["10.0.0.0/8"], token=None
    )
    visitor = access.visitor(_request(client, x_user="ada"))
    assert (visitor is not None) is is_known


def test_a_token_of_sixteen_letters_is_long_enough() -> None:
    Access(role="reader", auth=None, user_header=None, proxies=[], token="x" * 16)
