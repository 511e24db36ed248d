"""`qframe doctor` finds faults that were planted on real servers, and nothing on healthy ones."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from bench import Bench
from click.testing import CliRunner
from eventually import eventually
from kazoo.client import KazooClient
from kazoo.security import ACL, Id, Permissions, make_digest_acl
from pooler import MariaDbPooler, Pooler
from roles import Right, Shop
from servers import MariaDbServer, PostgresServer, RedisServer, ZooKeeperServer
from small_disk import SmallDisk

from qframe import QFrame, Topic
from qframe.cli.main import cli
from qframe.clock import SYSTEM_CLOCK, Clock, SystemClock, VirtualClock
from qframe.doctor.examine import examine
from qframe.doctor.findings import Finding
from qframe.options.report import ConsumerReport
from qframe.options.settings import Settings
from qframe.stores.doubling import Doubling
from qframe.stores.sql.store import SqlStore


def found_by(store: str, *, clock: Clock = SYSTEM_CLOCK, **more: Any) -> dict[str, Finding]:
    """What is found, by the check that finds it; each has a remedy."""
    findings = examine(Settings.load(store=store, **more), clock).findings
    assert all(each.what and each.remedy for each in findings)
    assert len(findings) == len({each.check for each in findings}), findings
    return {each.check: each for each in findings}


def levels(found: dict[str, Finding]) -> dict[str, str]:
    return {check: finding.level for check, finding in found.items()}


class Shifted(SystemClock):
    """A clock that is a minute ahead."""

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + 60_000


# Redis.


def test_a_redis_that_keeps_what_it_is_given_lacks_a_replica_alone(tmp_path: Path) -> None:
    config = {
        "maxmemory": "100mb", "maxmemory-policy": "noeviction", "bind": "127.0.0.1 127.0.0.2",
    }  # fmt: skip
    with RedisServer(tmp_path, config=config, aof=True) as server:
        assert levels(found_by(server.url)) == {"replicas": "note"}
        elsewhere = found_by(f"redis://127.0.0.2:{server.port}")
        assert levels(elsewhere) == {"replicas": "note", "tls": "note"}
        waiting = found_by(f"{server.url}?wait_replicas=1")
        assert levels(waiting) == {"replicas": "note", "wait_replicas": "error"}


@pytest.mark.gate
def test_faults_of_a_redis_server_are_found(tmp_path: Path) -> None:
    with RedisServer(tmp_path, config={"maxmemory-policy": "allkeys-lru"}) as server:
        found = found_by(server.url, clock=Shifted())
        assert levels(found) == {
            "eviction": "error", "clock": "warning", "persistence": "warning", "memory": "note",
            "replicas": "note",
        }  # fmt: skip
        assert re.search(r"(60|59)\.\d s ahead of the server's", found["clock"].what)
        assert "noeviction" in found["eviction"].remedy
        server.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        used = int(server.call("INFO", "memory")["used_memory"])
        server.call("CONFIG", "SET", "maxmemory", used + used // 20)
        assert found_by(server.url)["memory"].level == "warning"
        server.call("CONFIG", "SET", "maxmemory", used // 2)
        found = found_by(server.url)["memory"]
        assert (found.level, found.what.endswith("is used: publishing fails")) == ("error", True)


def test_a_redis_that_cannot_write_its_files_is_found(tmp_path: Path) -> None:
    with RedisServer(tmp_path, config={"enable-protected-configs": "yes"}) as server:
        assert "writing" not in found_by(server.url)
        gone = tmp_path / "gone"
        gone.mkdir()
        server.call("CONFIG", "SET", "dir", str(gone))
        gone.rmdir()
        server.call("BGSAVE")
        eventually(lambda: "writing" in found_by(server.url))
        found = found_by(server.url)["writing"]
        assert (found.level, found.what[-22:]) == ("error", "rdb_last_bgsave_status")


def test_rights_that_a_redis_user_lacks_are_named(redis_server: RedisServer) -> None:
    rights = ["~*", "&*", "+@all", "-xadd", "-zrem"]
    redis_server.call("ACL", "SETUSER", "doctored", "on", ">s", *rights)
    url = redis_server.url.replace("redis://", "redis://doctored:s@")
    assert found_by(url)["rights"].what == "the user may not run: xadd, zrem"
    redis_server.call("ACL", "DELUSER", "doctored")


def test_a_store_that_is_away_and_a_password_that_is_wrong_are_errors(
    redis_server: RedisServer,
) -> None:
    away = found_by("redis://127.0.0.1:1")
    assert levels(away) == {"store": "error"}
    assert "127.0.0.1:1" in away["store"].what
    wrong = found_by(redis_server.url.replace("redis://", "redis://nobody:hunter2@"))
    assert levels(wrong)["store"] == "error"
    assert "hunter2" not in str(wrong)


# Databases.


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    url = postgres.new_database()
    SqlStore(url).close()
    return url


@pytest.mark.gate
def test_faults_of_a_postgres_database_are_found(
    postgres: PostgresServer, postgres_url: str
) -> None:
    durability = found_by(postgres_url)["durability"]  # the tests' server does without fsync
    assert "fsync is off" in durability.what
    name = postgres_url.rpartition("/")[2]
    postgres.call("DROP INDEX qframe_subjects_order", name)
    postgres.call(f"ALTER DATABASE {name} SET synchronous_commit = off")
    postgres.call(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    found = found_by(postgres_url)
    assert "synchronous_commit is off" in found["durability"].what
    assert found["indexes"].what == "the index qframe_subjects_order is missing"
    assert found["writable"].level == "error"
    postgres.call(f"ALTER DATABASE {name} RESET ALL")
    postgres.call(found["indexes"].remedy.removeprefix("run: "), name)
    assert set(found_by(postgres_url)) == {"durability"}


@pytest.mark.parametrize("heading", ["PostgreSQL", "MariaDB"])
def test_the_role_of_a_worker_on_the_page_of_roles_is_enough(
    request: pytest.FixtureRequest, heading: str
) -> None:
    server = request.getfixturevalue("postgres" if heading == "PostgreSQL" else "mariadb")
    shop = Shop(server, f"{heading}, a message store")
    SqlStore(shop.url).close()
    shop.grant(0)
    assert "rights" not in found_by(shop.url_of("worker"))
    shop.close()


def test_tables_of_another_version_and_missing_rights_are_found(
    postgres: PostgresServer, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres.call("CREATE ROLE doctored LOGIN", name)
    found = found_by(postgres_url.replace("//qframe@", "//doctored@"))
    assert found["store"].level == "error"
    postgres.call("GRANT SELECT ON ALL TABLES IN SCHEMA public TO doctored", name)
    found = found_by(postgres_url.replace("//qframe@", "//doctored@"))
    assert "may not read and change: qframe_" in found["rights"].what
    postgres.call("UPDATE qframe_version SET version = version - 1", name)
    assert found_by(postgres_url)["migrations"].remedy.endswith("was never released")


def test_faults_of_a_mariadb_server_are_found(mariadb: MariaDbServer) -> None:
    url = mariadb.new_database()
    SqlStore(url).close()
    found = found_by(url, max_body=2**29)
    assert levels(found) == {"durability": "warning", "packets": "warning"}
    assert "innodb_flush_log_at_trx_commit is 2" in found["durability"].what
    assert "max_allowed_packet" in found["packets"].what


def test_rights_that_a_mariadb_user_lacks_are_named_by_table(mariadb: MariaDbServer) -> None:
    shop = Shop(mariadb, "MariaDB, a message store")
    SqlStore(shop.url).close()
    shop.grant(0)
    assert "may not read and change: qframe_" in found_by(shop.url_of("producer"))["rights"].what
    shop.take(Right("DELETE", "shop.qframe_dead", "shop_worker@'%'"))
    found = found_by(shop.url_of("worker"))["rights"]
    assert found.what == "the user may not read and change: qframe_dead"
    shop.close()


def test_a_log_of_statements_is_found(tmp_path: Path) -> None:
    """MariaDB refuses writes under READ COMMITTED then; the tests' own server has no such log."""
    config = {"skip-log-bin": "0", "log-bin": "binlog", "binlog-format": "STATEMENT"}
    with MariaDbServer(tmp_path, config=config) as server:
        url = server.new_database()
        server.call("SET GLOBAL binlog_format = 'MIXED'")
        SqlStore(url).close()
        assert "isolation" not in found_by(url)
        server.call("SET GLOBAL binlog_format = 'STATEMENT'")
        found = found_by(url)["isolation"]
        assert (found.level, found.remedy) == ("error", "set binlog_format to MIXED or ROW")


def test_another_isolation_is_found(postgres: PostgresServer, postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres.call(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    found = found_by(postgres_url)["isolation"]
    assert (found.level, found.what[:37]) == ("note", "the default isolation is serializable")


@pytest.mark.gate
def test_what_a_pooler_ignores_of_a_session_is_named_until_the_role_has_it(
    postgres: PostgresServer, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    with Pooler(postgres.port, keeps_options=False) as pooler:
        url = postgres_url.replace(f":{postgres.port}/", f":{pooler.port}/")
        found = found_by(url)["settings"]
        assert found.level == "warning"
        assert found.what.startswith(
            "lock_timeout is 0, idle_in_transaction_session_timeout is 0, enable_seqscan is on, jit"
        )
        for statement in found.remedy.split("; "):
            postgres.call(statement.replace("ROLE …", f"ROLE qframe IN DATABASE {name}"))
        assert set(found_by(url)) == {"durability"}


def test_a_proxy_that_forgets_what_a_session_sets_is_refused_and_named(
    mariadb: MariaDbServer,
) -> None:
    url = mariadb.new_database()
    SqlStore(url).close()
    with MariaDbPooler(mariadb.port) as pooler:
        found = found_by(url.replace(f":{mariadb.port}/", f":{pooler.port}/"))["store"]
    assert found.level == "error"
    assert "its sessions are not set as qframe asks (time_zone is SYSTEM)" in found.what


def test_a_mariadb_whose_transactions_only_read_is_found(mariadb: MariaDbServer) -> None:
    url = mariadb.new_database()
    SqlStore(url).close()
    user = f"u{url.rpartition('_')[2]}"
    mariadb.call(f"CREATE USER {user} IDENTIFIED BY ''")
    mariadb.call(f"GRANT ALL ON {url.rpartition('/')[2]}.* TO {user}")
    mariadb.call("SET GLOBAL init_connect = 'SET tx_read_only = 1'")
    try:
        found = found_by(url.replace("//root@", f"//{user}@"))["writable"]
    finally:
        mariadb.call("SET GLOBAL init_connect = DEFAULT")
        mariadb.call(f"DROP USER {user}")
    assert found.level == "error"
    assert found.what.endswith("tx_read_only is on")


def test_a_search_path_that_leads_to_other_tables_is_found(
    postgres: PostgresServer, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres.call("CREATE SCHEMA shop", name)
    elsewhere = f"{postgres_url}?options=-csearch_path%3Dshop"
    found = found_by(elsewhere)["search_path"]
    assert found.level == "error"
    assert found.what.endswith("which are in the schema public")
    SqlStore(elsewhere).close()
    found = found_by(elsewhere)["search_path"]
    assert found.level == "note"
    assert found.what.endswith("search_path leads to shop")
    assert "search_path" in found_by(postgres_url)


@pytest.mark.gate
def test_a_sqlite_file_is_healthy_until_it_trades_safety_for_speed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    SqlStore(url).close()
    assert found_by(url) == {}
    assert levels(found_by(f"{url}?synchronous=normal")) == {"durability": "warning"}


def test_a_sqlite_file_that_is_not_there_is_found_and_not_created(tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    found = found_by(f"sqlite:///{path}")
    assert levels(found) == {"store": "error"}
    assert found["store"].what == f"the database {path} does not exist yet"
    assert not path.exists()
    with RedisServer(tmp_path) as server:
        assert found_by(server.url, timers_db=f"sqlite:///{path}")["timers_db"].level == "error"
        away = found_by(server.url, timers_db="postgresql+psycopg://u@127.0.0.1:1/x")
        assert away["timers_db"].level == "error"


@pytest.mark.mounts
def test_a_disk_with_little_room_is_found(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "small", 16 * 2**20, ballast=0) as disk:
        url = f"sqlite:///{disk.folder / 'q.db'}"
        SqlStore(url).close()
        assert levels(found_by(url)) == {"space": "warning"}
        free = shutil.disk_usage(disk.folder).free
        (disk.folder / "all").write_bytes(bytes(free))
        found = found_by(url)
        assert (found["space"].level, found["space"].what) == (
            "error", f"{disk.folder} has no room left: publishing fails",
        )  # fmt: skip


# The coordinator.


def test_faults_of_a_coordinator_are_found(
    tmp_path: Path, zookeeper: ZooKeeperServer, zookeeper_url: str
) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    SqlStore(url).close()
    assert levels(found_by(url, coordinator=zookeeper_url)) == {"ensemble": "note"}
    long = found_by(url, coordinator=zookeeper_url, session_timeout=600)
    assert "sessions of 60 s" in long["session"].what
    client = KazooClient(zookeeper.address)
    client.start(60)
    try:
        path = zookeeper_url.rpartition("/")[2]
        client.create(f"/{path}/qframe")
        assert levels(found_by(url, coordinator=zookeeper_url))["rights"] == "note"
        client.set_acls(f"/{path}/qframe", [make_digest_acl("ann", "s", all=True)])
        assert levels(found_by(url, coordinator=zookeeper_url))["rights"] == "error"
        client.add_auth("digest", "ann:s")
        anybody = Id("world", "anyone")
        client.set_acls(f"/{path}/qframe", [ACL(Permissions.READ, anybody)])
        found = found_by(url, coordinator=zookeeper_url)["rights"]
        assert found.what == f"the user may not make nodes below /{path}/qframe"
        reading = [ACL(Permissions.READ, anybody), make_digest_acl("ann", "s", admin=True)]
        client.create(f"/{path}/closed", acl=reading)
        closed = f"zookeeper://{zookeeper.address}/{path}/closed"
        assert f"below /{path}/closed" in found_by(url, coordinator=closed)["rights"].what
        client.set_acls(f"/{path}/closed", [make_digest_acl("ann", "s", all=True)])
        by_ann = closed.replace("://", "://ann:s@")
        assert "rights" not in found_by(url, coordinator=by_ann)
    finally:
        client.stop()
        client.close()
    away = found_by(url, coordinator="zookeeper://127.0.0.1:1")
    assert levels(away) == {"coordinator": "error"}


# Topics, and the command.


def test_unsafe_topics_and_groups_that_nobody_serves_are_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with QFrame(url) as app:
        events = Topic("events", slots=1, dedupe_window="5s", retain=0.001)
        app.consumer(events, group="billing")(lambda: None)
        app.publish(events, 1)
        app.publish(events, 2)
    found = found_by(url, clock=Shifted())
    assert levels(found) == {
        "dedupe_window": "warning", "retention": "warning", "workers": "warning"
    }  # fmt: skip
    assert found["retention"].remedy.endswith("qframe groups drop events billing")
    said = "events/billing has 2 messages due or in hand, and no worker is alive"
    assert found["workers"].what == said
    ran = CliRunner().invoke(
        cli, ["groups", "list", "events", "--store", url], catch_exceptions=False
    )
    assert "qframe groups drop events billing" in " ".join(ran.output.split())


def test_a_topic_that_grows_is_noted_with_how_far_it_is(tmp_path: Path) -> None:
    def stop(_: Topic) -> None:
        raise KeyboardInterrupt

    url = f"sqlite:///{tmp_path / 'q.db'}"
    with closing(SqlStore(url)) as store:
        topic = Topic("orders", kind="ordered", slots=8)
        store.declare(topic)
        doubling = Doubling(
            store, "orders", owned=lambda *_: (), pause=lambda _: None, on_progress=stop
        )
        with pytest.raises(KeyboardInterrupt):
            doubling.finish(doubling.begin(16))
        [topic] = store.topics()
        assert store.grow(topic, topic.grown(8, topic.growth._replace(closing=True)))
    assert {each.check: each.what for each in found_by(url).values()} == {
        "growth": "topic orders grows: it has 9 of 16 slots, and slot 1 is being split"
    }
    ran = CliRunner().invoke(cli, ["topics", "list", "--store", url], catch_exceptions=False)
    assert ran.output.splitlines()[1].split()[:5] == ["orders", "ordered", "9", "of", "16"]


def test_what_workers_report_of_parked_messages_and_an_open_breaker_is_found(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'q.db'}"
    clock = VirtualClock(SYSTEM_CLOCK.now_ms())
    with closing(SqlStore(url, clock=clock)) as store:
        topic = Topic("events", slots=2)
        store.declare(topic)
        store.subscribe(topic, "g")
        report = ConsumerReport(
            max_attempts=5, failures=12, pause_ms=30_000, full=(1,), behind_s=180
        )
        store.report(topic, "g", "w", report.to_json())
        found = found_by(url, clock=clock)
        assert levels(found) == dict.fromkeys(("breaker", "parked", "sweeping"), "warning")
        assert "behind with sweeping for 3 min" in found["sweeping"].what
        assert "the circuit breaker of events/g is open, after 12" in found["breaker"].what
        Bench(lambda _: store, lambda _: None, "t").publish(topic, 1)
        clock.advance(5000)
        found = found_by(url, clock=clock)
        assert found["breaker"].what.endswith("; its oldest due message has waited for 5 s")
        clock.advance(60_000)
        assert "breaker" not in found_by(url, clock=clock)


@pytest.mark.gate
def test_the_command_shows_settings_with_their_sources_and_exits_with_what_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QFRAME_GRACE", "7")
    (tmp_path / "qframe.toml").write_text('namespace = "shop"\n')
    url = f"sqlite:///{tmp_path / 'q.db'}"
    SqlStore(url).close()
    monkeypatch.setenv("QFRAME_STORE", f"{url}?synchronous=normal")

    def run(*words: str) -> tuple[int, str]:
        ran = CliRunner().invoke(cli, ["doctor", *words], catch_exceptions=False)
        return ran.exit_code, ran.output

    code, out = run("--json")
    said = json.loads(out)
    assert code == 0
    assert [each["check"] for each in said["findings"]] == ["durability"]
    sources = {each["name"]: each["source"] for each in said["settings"]}
    assert sources["grace"] == "QFRAME_GRACE"
    assert sources["namespace"] == "qframe.toml"
    assert sources["log_level"] == "default"
    assert {"python", "qframe", "sqlite"} <= set(said["versions"])
    code, out = run("--strict")
    assert code == 1
    assert "remedy" in out
    monkeypatch.setenv("QFRAME_STORE", "redis://:hunter2@127.0.0.1:1")
    code, out = run()
    assert code == 1
    assert "hunter2" not in out
    for wrong in ("shop.db", "me:hunter2@host/x"):
        monkeypatch.setenv("QFRAME_STORE", wrong)
        code, out = run("--json")
        assert code == 1
        assert "hunter2" not in out
        [found] = json.loads(out)["findings"]
        assert (found["check"], found["level"]) == ("store", "error")
        assert "it is not a URL" in found["what"]
