"""What a ZooKeeper URL may say, what is refused, and that its password is shown to nobody."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from certificates import certificate

from qframe import BadUrl
from qframe.drivers.zookeeper import ZooKeeper
from qframe.drivers.zookeeper_servers import servers_of

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "hosts", "root"),
    [
        ("zookeeper://a", ["a:2181"], ""),
        ("zookeeper://a/", ["a:2181"], ""),
        ("zookeeper://a:1/b", ["a:1"], "/b"),
        ("ZooKeeper://a:65535/b/c/", ["a:65535"], "/b/c"),
        ("zookeeper://a:1,b,c:3/d", ["a:1", "b:2181", "c:3"], "/d"),
        ("zookeeper://10.0.0.1:1,[::1]:2,[fe80::ab]", ["10.0.0.1:1", "[::1]:2", "[fe80::ab]:2181"],
         ""),
        ("zookeeper://u:p@a/b%20c", ["a:2181"], "/b c"),
        ("zookeeper://bücher.example", ["bücher.example:2181"], ""),
    ],
)  # fmt: skip
def test_a_url_names_hosts_and_a_chroot(url: str, hosts: list[str], root: str) -> None:
    servers = servers_of(url)
    assert (list(servers.hosts), servers.root, servers.tls) == (hosts, root, None)


@pytest.mark.parametrize(
    ("credentials", "user", "password"),
    [("u:p", "u", "p"), ("u:p:q", "u", "p:q"), ("u%40v:%2F%3A%25%23", "u@v", "/:%#"),
     ("u:p@q", "u", "p@q"), ("u:p#q", "u", "p#q")],
)  # fmt: skip
def test_a_url_names_a_user_and_a_password(credentials: str, user: str, password: str) -> None:
    servers = servers_of(f"zookeeper://{credentials}@a:1,b:2/c")
    assert (servers.user, servers.password) == (user, password)
    assert servers.hosts == ("a:1", "b:2")
    assert servers.shown == "zookeeper://***@a:1,b:2/c"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "not a ZooKeeper URL"),
        ("localhost:2181", "not a ZooKeeper URL"),
        ("redis://a", "not a ZooKeeper URL"),
        ("zookeeper:/a", "not a ZooKeeper URL"),
        ("zookeeper://", "no host"),
        ("zookeeper:///a", "no host"),
        ("zookeeper://:2181", "no host"),
        ("zookeeper://a,,b", "no host"),
        ("zookeeper://a:0", "wrong host or port"),
        ("zookeeper://a:65536", "wrong host or port"),
        ("zookeeper://a:b", "wrong host or port"),
        ("zookeeper://a:-1", "wrong host or port"),
        ("zookeeper://::1", "wrong host or port"),
        ("zookeeper://[::1", "wrong host or port"),
        ("zookeeper://a..b", "wrong host or port"),
        ("zookeeper://a#b", "wrong host or port"),
        ("zookeeper://a b", "a space"),
        ("zookeeper://a\n", "unprintable"),
        ("zookeeper://a//b", "not a valid node path"),
        ("zookeeper://a/b/../c", "not a valid node path"),
        ("zookeeper://a/b%00", "not a valid node path"),
        ("zookeeper://@a", "needs both user and password"),
        ("zookeeper://u@a", "needs both user and password"),
        ("zookeeper://u:@a", "needs both user and password"),
        (f"zookeeper://:{SECRET}@a", "needs both user and password"),
        (f"zookeeper://u%3Av:{SECRET}@a", "contains a colon"),
        (f"zookeeper://u:{SECRET}ß@a", "not ASCII"),
        (f"zookeeper://u:{SECRET}/x@a", "write %40 for @, %2F for /"),
        (f"zookeeper://u:{SECRET}?x@a", "write %40 for @, %2F for /"),
        (f"zookeeper://u:x@y?{SECRET}@a", "write %40 for @, %2F for /"),
        (f"zookeeper://u:{SECRET}", "wrong host or port"),
        (f"zookeeper://u:{SECRET},a:1/b", "wrong host or port"),
        ("zookeeper://a?timeout=3", "other than ssl_ca_certs, ssl_certfile"),
        ("zookeeper://a?ssl_ca_certs", "ssl_ca_certs is empty"),
        ("zookeepers://a?ssl_ca_certs=/no/such/file", "/no/such/file cannot be used (No such file"),
        ("zookeepers://a?ssl_certfile=/no/such/file", "/no/such/file cannot be used (No such file"),
        (
            "zookeepers://a?ssl_keyfile=/no/such/file",
            "names the key /no/such/file without its certificate",
        ),
        ("zookeepers://a?ssl_cert_reqs=maybe", "neither required nor none"),
        ("zookeepers://a?ssl_check_hostname=maybe", "neither true nor false"),
        (f"zookeepers://a?ssl_certfile=/no&ssl_password={SECRET}", "cannot be used"),
        (f"zookeepers://a?ssl_password={SECRET}&x=y", "an option other than"),
        (f"zookeeper://a/x?auth=digest:u:{SECRET}", "an option other than"),
        (f"zookeeper://a/x?{SECRET}", "an option other than"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, why: str) -> None:
    with pytest.raises(BadUrl) as raised:
        ZooKeeper(url, session_s=10, on_state=lambda: None)
    assert why in str(raised.value)
    assert raised.value.what == "coordinator"
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(raised.value.args)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"zookeeper://u:{SECRET}@a:1/b", "zookeeper://***@a:1/b"),
        (f"zookeeper://{SECRET}:{SECRET}@a,b:2", "zookeeper://***@a,b:2"),
        (f"zookeeper://u:{SECRET}@a?ssl_cert_reqs=none", "zookeeper://***@a?ssl_cert_reqs=none"),
        (f"zookeepers://a?ssl_password={SECRET}&ssl_cert_reqs=none",
         "zookeepers://a?ssl_password=***&ssl_cert_reqs=none"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    zookeeper = ZooKeeper(url, session_s=10, on_state=lambda: None)
    assert zookeeper.shown == shown
    for text in (repr(servers_of(url)), repr(zookeeper)):
        assert f"password='{SECRET}" not in text


def test_what_is_not_started_has_no_session_and_needs_no_server() -> None:
    zookeeper = ZooKeeper("zookeeper://no.such.host/a/b", session_s=10, on_state=lambda: None)
    assert (zookeeper.connected, zookeeper.session_id, zookeeper.session_s) == (False, 0, 0.0)
    assert (zookeeper.root, zookeeper.trouble) == ("/a/b", "")
    zookeeper.close()
    zookeeper.close()


def test_with_a_user_nodes_are_open_to_nobody_else() -> None:
    with_user = ZooKeeper(f"zookeeper://u:{SECRET}@a", session_s=10, on_state=lambda: None)
    assert with_user.acl is not None
    [entry] = with_user.acl
    assert entry.acl_list == ["ALL"]
    assert (entry.id.scheme, entry.id.id.split(":")[0]) == ("digest", "u")
    assert SECRET not in repr(entry)
    assert ZooKeeper("zookeeper://a", session_s=10, on_state=lambda: None).acl is None


def test_tls_is_spoken_when_the_scheme_or_an_option_says_so(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "a+b")
    strict = [f"zookeepers://a?ssl_ca_certs={made}", f"zookeeper://a?ssl_ca_certs={made}",
              "zookeepers://a",
              f"zookeepers://a?ssl_certfile={made}&ssl_keyfile={key}"]  # fmt: skip
    for url in strict:
        tls = servers_of(url).tls
        assert tls is not None
        assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)
    tls = servers_of("zookeepers://a?ssl_check_hostname=False").tls
    assert tls is not None
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, False)
    tls = servers_of("zookeepers://a?ssl_cert_reqs=none").tls
    assert tls is not None
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_NONE, False)


def test_only_the_certificates_that_are_named_are_trusted(tmp_path: Path) -> None:
    made, _ = certificate(tmp_path, "ca")
    tls = servers_of(f"zookeepers://a?ssl_ca_certs={made}").tls
    assert tls is not None
    assert len(tls.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("session_s", "hosts", "share_s"), [(30, "a", 10), (30, "a,b,c", 6), (1, "a,b,c", 0.5)]
)
def test_each_server_has_a_share_of_the_session_to_answer(
    session_s: float, hosts: str, share_s: float
) -> None:
    assert servers_of(f"zookeeper://{hosts}").share_s(session_s) == share_s
