"""Which addresses are public, which URLs and secrets are taken, and what is signed."""

from __future__ import annotations

import base64
import ipaddress
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, NoReturn

import httpcore2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook
from typing_extensions import override

from qframe import BadOption, BadUrl, Batch, QFrame
from qframe.clock import SYSTEM_CLOCK, VirtualClock
from qframe.push import Webhook as Receiving
from qframe.push import WebhookRefused, push
from qframe.push.addresses import AddressRefused, CheckedAddresses, Resolve
from qframe.push.contents import PushContent
from qframe.push.signatures import secrets_of, signature
from qframe.push.special_addresses import is_public
from qframe.push.webhook import WebhookGone, WebhookUnavailable

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


class SilentNetwork(httpcore2.NetworkBackend):
    """A network whose hosts do not answer, but for one that refuses; time passes by its clock."""

    def __init__(self, clock: VirtualClock, refusing: str = "") -> None:
        self.asked: dict[str, float] = {}
        self._clock, self._refusing = clock, refusing

    @override
    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *_: Any, **__: Any
    ) -> NoReturn:
        self.asked[host] = timeout or 0.0
        if host == self._refusing:
            raise httpcore2.ConnectError("refused")
        self._clock.advance(round(1000 * (timeout or 0.0)))
        raise httpcore2.ConnectTimeout("timed out")


def checked(resolve: Resolve) -> CheckedAddresses:
    return CheckedAddresses(httpcore2.SyncBackend(), SYSTEM_CLOCK, private=False, resolve=resolve)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "198.18.0.1", "::1", "::",
        "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1",
        "64:ff9b::a00:1", "2002:a00:1::", "2002:7f00:1::1", "64:ff9b:1::a00:1", "fec0::1",
        "::127.0.0.1", "::ffff:0:10.0.0.1", "2002:808:808::1", "10.0.0.1%eth0",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:808:808::f7f7:f7f7",
    ],
)  # fmt: skip
def test_addresses_that_are_not_of_the_internet(address: str) -> None:
    assert not is_public(address)
    assert is_public("93.184.215.14")
    assert is_public("2606:4700::1")


REGISTRIES = {
    # IPv4, and whether it is globally reachable.
    "0.0.0.0/8": False, "10.0.0.0/8": False, "100.64.0.0/10": False, "127.0.0.0/8": False,
    "169.254.0.0/16": False, "172.16.0.0/12": False, "192.0.0.0/29": False, "192.0.0.8/32": False,
    "192.0.0.9/32": True, "192.0.0.10/32": True, "192.0.0.11/32": False, "192.0.0.170/31": False,
    "192.0.0.128/25": False, "192.0.2.0/24": False, "192.31.196.0/24": True,
    "192.52.193.0/24": True, "192.88.99.0/24": False, "192.168.0.0/16": False,
    "192.175.48.0/24": True, "198.18.0.0/15": False, "198.51.100.0/24": False,
    "203.0.113.0/24": False, "224.0.0.0/4": False, "240.0.0.0/4": False,
    # IPv6.
    "::/128": False, "::1/128": False, "64:ff9b:1::/48": False, "100::/64": False,
    "100:0:0:1::/64": False, "2001::/32": False, "2001:1::1/128": True, "2001:1::2/128": True,
    "2001:1::3/128": True, "2001:1::4/128": False, "2001:2::/48": False, "2001:3::/32": True,
    "2001:4:112::/48": True, "2001:10::/28": False, "2001:20::/28": True, "2001:30::/28": True,
    "2001:1f0::/28": False, "2001:db8::/32": False, "2002::/16": False, "2620:4f:8000::/48": True,
    "3fff::/20": False, "5f00::/16": False, "fc00::/7": False, "fe80::/10": False,
    "fec0::/10": False, "ff00::/8": False,
    # Not special, or not given to anybody.
    "8.8.8.0/24": True, "2000::/16": True, "2001:200::/23": True, "2606:4700::/32": True,
    "3fff:1000::/20": True, "4000::/3": False, "8000::/3": False, "::808:808/128": False,
    "::ffff:0:808:808/128": False,
    # Of IPv4, in a form of IPv6.
    "::ffff:8.8.8.8/128": True, "::ffff:192.0.0.1/128": False, "64:ff9b::808:808/128": True,
    "64:ff9b::c000:1/128": False,
}  # fmt: skip


@pytest.mark.parametrize(("network", "is_global"), REGISTRIES.items())
def test_an_address_is_public_as_ianas_registries_say_whatever_python_knows(
    network: str, is_global: bool
) -> None:
    found = ipaddress.ip_network(network)
    for address in (found[0], found[-1]):
        assert is_public(str(address)) is is_global


@pytest.mark.parametrize("answers", [["10.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["::1", "8.8.8.8"]])
def test_a_host_with_a_private_address_is_not_connected_to(answers: list[str]) -> None:
    def resolve(host: str, port: int) -> list[str]:
        return answers

    with pytest.raises(AddressRefused, match=r"shop\.example has the address .*private=True"):
        checked(resolve).connect_tcp("shop.example", 443, 1.0)


@pytest.mark.parametrize("private", [False, True])
def test_the_addresses_of_a_host_share_the_time_for_connecting(private: bool) -> None:
    """The lookup takes 0.4 s of it, the second address refuses at once, the others are silent."""
    clock = VirtualClock()
    network = SilentNetwork(clock, refusing="8.8.8.8")

    def resolve(host: str, port: int) -> list[str]:
        clock.advance(400)
        return ["1.1.1.1", "8.8.8.8", "9.9.9.9", "1.0.0.1"]

    connections = CheckedAddresses(network, clock, private=private, resolve=resolve)
    with pytest.raises(httpcore2.ConnectTimeout):
        connections.connect_tcp("shop.example", 443, 2.0)
    assert network.asked == pytest.approx(
        {"1.1.1.1": 0.4, "8.8.8.8": 0.4, "9.9.9.9": 0.6, "1.0.0.1": 0.6}
    )
    assert clock.monotonic_s() == pytest.approx(2.0)
    network.asked.clear()
    with pytest.raises(httpcore2.ConnectTimeout):  # the lookup takes all of it
        connections.connect_tcp("shop.example", 443, 0.4)
    assert network.asked == {}


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "no URL"), ("shop.example/hook", "no URL"), ("ftp://shop.example/", "no URL"),
        ("https://", "no URL"), ("https://shop.example:99999/", "no URL"),
        ("https://shop.example/\u00e9", "no URL"), ("https://shop.example/a b", "no URL"),
        ("https://b\u00fccher.example/", "no URL"), ("https://exa mple.com/", "no URL"),
        ("https://shop.example/\r\nx: y", "no URL"), ("https://shop.\texample/", "no URL"),
        ("https://shop.example/\n", "no URL"), ("https://shop..example/", "no URL"),
        (f"https://{'a' * 64}.example/", "no URL"), ("https://shop.example:0/", "no URL"),
        ("https://[::1/", "no URL"), ("http://shop.example/hook", "read on their way"),
        ("https://me:secret@shop.example/", "has a user in it"),
        ("https://me@shop.example/", "has a user in it"),
        ("https://127.0.0.1/", "not a public address"), ("https://[::1]/", "not a public address"),
        ("https://localhost/", "not a public address"),
        ("https://LOCALHOST./", "not a public address"),
        ("https://169.254.169.254/latest", "not a public address"),
    ],
)  # fmt: skip
def test_urls_that_are_refused_at_once_and_without_what_they_hide(url: str, why: str) -> None:
    with pytest.raises(BadUrl, match=why) as raised:
        push(QFrame(store="model://"), "orders", "g", url, secrets=SECRET)
    assert "secret@" not in str(raised.value)


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", "short", base64.b64encode(b"s" * 32).decode(), "whsec_c2hvcnQ=", "whsec_é",
     "whsec_" + base64.b64encode(b"s" * 65).decode()],
)  # fmt: skip
def test_secrets_that_are_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(BadOption) as raised:
        push(QFrame(store="model://"), "orders", "g", "https://shop.example/", secrets=secret)
    assert secret in ("", "whsec_") or secret not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"events": "cloud"}, "no content mode"),
        ({"events": "structured", "batch": Batch(4, "20ms")}, "one message unless events are"),
    ],
)
def test_a_wrong_mode_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(BadOption, match=why):
        push(
            QFrame(store="model://"), "orders", "g", "https://x.example", secrets=SECRET, **options
        )


def test_it_needs_no_package_of_the_web() -> None:
    """The extra `push` has httpcore2 alone."""
    hidden = "; ".join(f"sys.modules[{name!r}] = None" for name in ("starlette", "uvicorn"))
    code = f"import sys; {hidden}; import qframe.push"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("value", ["text/plain; x=\u00fc", " text/plain", "a\r\nb: c"])
def test_a_header_that_cannot_be_sent_is_an_error_of_ours(value: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/hook"
        webhook = Receiving(url, SECRET, timeout_s=5, private=True, clock=SYSTEM_CLOCK)
        with pytest.raises(WebhookRefused, match="cannot be sent this: "):
            webhook.send(PushContent("m", {"content-type": value}, b"{}"))


def test_a_text_may_hold_several_secrets_and_the_shortest_is_one() -> None:
    other = "whsec_" + base64.b64encode(b"t" * 24).decode()
    assert secrets_of(f"{SECRET}  {other}") == [b"s" * 32, b"t" * 24]


@pytest.mark.parametrize(
    ("status", "again", "raised"),
    [
        (299, None, None), (300, None, WebhookRefused), (500, "5", WebhookRefused),
        (429, None, WebhookRefused), (503, "soon", WebhookRefused), (429, "5", WebhookUnavailable),
        (503, "5", WebhookUnavailable), (410, "5", WebhookGone),
    ],
)  # fmt: skip
def test_what_an_answer_means(
    status: int, again: str | None, raised: type[Exception] | None
) -> None:
    webhook = Receiving(
        "https://hooks.example", SECRET, timeout_s=1, private=False, clock=SYSTEM_CLOCK
    )
    with pytest.raises(raised) if raised else nullcontext():
        webhook._judge(status, {} if again is None else {"retry-after": again}, "why\nmore")


@given(
    body=st.binary(max_size=200),
    name=st.text("abcXYZ019_.:/@+=-", min_size=1, max_size=30),
    at_s=st.integers(0, 2**33),
)
def test_what_is_signed_is_what_the_specification_says(body: bytes, name: str, at_s: int) -> None:
    mine = signature(secrets_of(SECRET), name, at_s, body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return
    at = datetime.fromtimestamp(at_s, UTC)
    assert mine == Webhook(SECRET).sign(name, at, text)


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("0", 0), ("30", 30), ("3600", 3600), ("86400", 3600), ("-5", None),
        ("soon", None), ("", None),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30), ("Tue, 14 Nov 2023 22:13:50 -0000", 30),
        ("Tue, 14 Nov 2023 23:13:50 +0100", 30), ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("Wed, 15 Nov 2023 22:00:00 GMT", 3600),
    ],
)  # fmt: skip
def test_how_long_a_receiver_wants_to_be_left_alone_is_read_wherever_this_machine_is(
    monkeypatch: pytest.MonkeyPatch, said: str, wait_s: float | None
) -> None:
    clock = VirtualClock(1_700_000_000_000)  # Tue, 14 Nov 2023 22:13:20 GMT
    receiving = Receiving("http://127.0.0.1", SECRET, timeout_s=1, private=True, clock=clock)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert receiving._wait_s(said) == wait_s
    finally:
        monkeypatch.undo()
        time.tzset()
