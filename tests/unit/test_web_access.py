"""What clients of console and gateway say of themselves, and who is believed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from qframe.cli.web import EXTRAS, require, web_address
from qframe.clock import VirtualClock
from qframe.errors import BadOption
from qframe.web.access import (
    COOKIE,
    SIGNED_IN_S,
    Access,
    Visitor,
    is_local,
    is_same_origin,
    is_sent_by_page,
)


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
    visitor = access.visitor(_request(client, x_user="ada", host="127.0.0.1"))
    assert (visitor is not None) is is_known


@pytest.mark.parametrize(("names", "visitor"), [(1, Visitor("ada")), (2, None)])
def test_of_two_headers_that_name_a_user_neither_is_believed(
    names: int, visitor: Visitor | None
) -> None:
    access = Access(role="reader", auth=None, user_header="X-User", proxies=[], token=None)
    request = _request(host="127.0.0.1")
    request.scope["headers"] += [(b"x-user", b"ada"), (b"x-user", b"ceo")][:names]
    assert access.visitor(request) == visitor


@pytest.mark.parametrize("cookie", ["", "x", "YWRh.0000", "YWRh"])
def test_a_cookie_ends_twelve_hours_after_it_was_signed_whatever_the_browser_keeps(
    cookie: str,
) -> None:
    clock = VirtualClock()
    access = Access(
        role="reader", auth=None, user_header=None, proxies=[], token="x" * 16, clock=clock
    )  # fmt: skip
    signed = _request("203.0.113.9", cookie=f"{COOKIE}={access.cookie('ada')}")
    clock.advance(SIGNED_IN_S * 1000 - 1)
    assert access.visitor(signed) == Visitor("token (ada)")
    clock.advance(1)
    assert access.visitor(signed) is None
    assert access.visitor(_request(cookie=f"{COOKIE}={cookie}")) is None


def test_a_token_of_sixteen_letters_is_long_enough() -> None:
    Access(role="reader", auth=None, user_header=None, proxies=[], token="x" * 16)


# The address and the extra of the commands that need the web.


@pytest.mark.parametrize(
    ("port", "bound", "url"),
    [
        ("8370", "127.0.0.1", "http://127.0.0.1:8370"),
        ("localhost:1", "localhost", "http://localhost:1"),
        ("[::1]:8370", "::1", "http://[::1]:8370"),
    ],
)
def test_a_port_alone_is_one_of_this_machine_alone_and_needs_no_guard(
    port: str, bound: str, url: str
) -> None:
    address = web_address(port, is_guarded=False, danger="read", remedy="guard it")
    assert (address.bound, address.url()) == (bound, url)
    assert not address.is_everywhere


@pytest.mark.parametrize(
    ("port", "bound", "url"),
    [
        (":8370", "0.0.0.0", "https://127.0.0.1:8370"),
        ("[::]:8370", "::", "https://[::]:8370"),
        ("10.0.0.1:8370", "10.0.0.1", "https://10.0.0.1:8370"),
    ],
)
def test_what_other_machines_reach_is_served_only_if_it_is_guarded(
    port: str, bound: str, url: str
) -> None:
    address = web_address(port, is_guarded=True, danger="read", remedy="guard it")
    assert (address.bound, address.url("https")) == (bound, url)
    assert address.is_everywhere == (bound in ("0.0.0.0", "::"))
    with pytest.raises(BadOption, match="could read; guard it"):
        web_address(port, is_guarded=False, danger="read", remedy="guard it")


def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for extra in EXTRAS:
        require("console", extra)
    monkeypatch.setitem(EXTRAS, "web", ("starlette", "no_such_package"))
    with pytest.raises(BadOption, match=r"no_such_package.*pip install 'qframe\[web]'"):
        require("console", "web")


def test_the_packages_of_each_extra_are_those_that_it_installs() -> None:
    extras = tomllib.loads(
        (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    )
    brought = extras["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        assert {re.split("[>=<]", each)[0] for each in brought[extra]} == set(packages)
