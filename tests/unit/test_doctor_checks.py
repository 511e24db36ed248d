"""The doctor's checks of facts, one by one: the level of what each finds, and that it says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qframe.admin.totals import Totals
from qframe.doctor import redis_checks as of_redis
from qframe.doctor import sql_checks as of_sql
from qframe.doctor import tls_checks as of_tls
from qframe.doctor import topic_checks as of_topics
from qframe.doctor.findings import Finding
from qframe.drivers.redis_servers import Replicas
from qframe.options.report import ConsumerReport
from qframe.topic import Topic

Check = Callable[[Any], Finding | None]
FULL = {"maxmemory": 1000, "used_memory": 1000}
STATEMENT = {"log_bin": "ON", "binlog_format": "STATEMENT", "tx_isolation": "READ-COMMITTED"}


def waits_for_two(facts: dict[str, Any]) -> Finding | None:
    return of_redis.awaited(facts, Replicas(2, 1000))


@pytest.mark.parametrize(
    ("check", "facts", "level", "word"),
    [
        (of_redis.version, {"redis_version": "6.2.1"}, "error", "6.2.1"),
        (of_redis.version, {"redis_version": "7.0.0"}, None, ""),
        (of_redis.version, {"redis_version": "6.2.1", "valkey_version": "8.0.1"}, None, ""),
        (of_redis.eviction, {"maxmemory_policy": "allkeys-lru"}, "error", "allkeys-lru"),
        (of_redis.memory, {}, "note", "not set"),
        (of_redis.memory, FULL | {"used_memory": 899}, None, ""),
        (of_redis.memory, FULL | {"used_memory": 900}, "warning", "90% of.*soon fails"),
        (of_redis.memory, FULL, "error", "publishing fails"),
        (of_redis.memory, FULL | {"mem_not_counted_for_evict": 50}, "warning", "95%"),
        (of_redis.memory, FULL | {"maxmemory_policy": "allkeys-lru"}, "warning", "soon fails"),
        (of_redis.persistence, {"role": "master"}, "warning", "appendonly"),
        (of_redis.persistence, {"role": "slave"}, None, ""),
        (of_redis.persistence, {"aof_enabled": 1}, None, ""),
        (of_redis.writing, {"rdb_last_bgsave_status": "err"}, "error", "rdb_last_bgsave"),
        (of_redis.writing, {"aof_last_write_status": "err"}, "error", "aof_last_write"),
        (of_redis.writing, {"aof_last_bgrewrite_status": "err"}, "error", "aof_last_bgrewrite"),
        (of_redis.writing, {"aof_last_write_status": "ok"}, None, ""),
        (of_redis.replicas, {"role": "master"}, "note", "no replica"),
        (of_redis.replicas, {"role": "master", "connected_slaves": 1}, None, ""),
        (of_redis.replicas, {"role": "slave"}, None, ""),
        (waits_for_two, {"role": "master", "connected_slaves": 1}, "error", "2 replicas, and 1"),
        (waits_for_two, {"role": "master", "connected_slaves": 2}, None, ""),
        (waits_for_two, {"role": "slave"}, None, ""),
        (lambda facts: of_redis.awaited(facts, None), {"role": "master"}, None, ""),
        (of_sql.durability, {"synchronous": "1"}, "warning", "synchronous is 1"),
        (of_sql.durability, {"synchronous": "2", "fsync": "on"}, None, ""),
        (of_sql.durability, {"innodb_flush_log_at_trx_commit": "2"}, "warning", "commit is 2"),
        (of_sql.durability, {"fsync": "off", "synchronous_commit": "off"}, "warning", "off, syn"),
        (of_sql.writable, {"in_hot_standby": "on"}, "error", "in_hot_standby"),
        (of_sql.writable, {"read_only": "1"}, "error", "read_only"),
        (of_sql.writable, {"read_only": "OFF", "innodb_read_only": "0"}, None, ""),
        (of_sql.isolation, {"tx_isolation": "READ-COMMITTED"}, None, ""),
        (of_sql.isolation, {"transaction_isolation": "REPEATABLE-READ"}, "note", "REPEATABLE"),
        (of_sql.isolation, {}, None, ""),
        (of_sql.isolation, STATEMENT, "error", "binlog_format"),
        (of_sql.isolation, STATEMENT | {"log_bin": "OFF"}, None, ""),
        (lambda facts: of_sql.packets(facts, 1000), {"max_allowed_packet": "6095"}, "warning",
         "6095"),
        (lambda facts: of_sql.packets(facts, 1000), {"max_allowed_packet": "6096"}, None, ""),
        (lambda facts: of_sql.packets(facts, 1000), {}, None, ""),
    ],
)  # fmt: skip
def test_facts_of_a_server_are_judged(
    check: Check, facts: dict[str, Any], level: str | None, word: str
) -> None:
    judged(check(facts), level, word)


def judged(found: Finding | None, level: str | None, word: str) -> None:
    if found is None or level is None:
        assert found is level
        return
    assert found.level == level
    assert re.search(word, found.what)
    assert found.remedy


@pytest.mark.parametrize(
    ("free", "level"), [(2**28, None), (2**28 - 1, "warning"), (2**16 - 1, "error")]
)
def test_a_disk_is_judged_by_what_is_free(
    monkeypatch: pytest.MonkeyPatch, free: int, level: str | None
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    judged(of_sql.space(Path("/data")), level, "/data")


def facts(workers: int = 0, reports: tuple[Any, ...] = (), **counts: Any) -> of_topics.GroupFacts:
    topic = Topic("t", retain="1m")
    totals = Totals(group="g", **counts)
    return of_topics.GroupFacts(
        topic=topic, totals=totals, workers=workers, now_ms=100_000, reports=reports
    )


FULL_SLOTS = tuple(ConsumerReport(max_attempts=9, full=(slot,)) for slot in (3, 1))
OPEN = tuple(ConsumerReport(max_attempts=9, pause_ms=5, failures=count) for count in (3, 7))


@pytest.mark.parametrize(
    ("check", "given", "level", "word"),
    [
        (of_topics.workers, facts(todo=1, doing=1), "warning", "2 messages"),
        (of_topics.workers, facts(doing=1), "warning", "1 message due"),
        (of_topics.workers, facts(workers=1, todo=1), None, ""),
        (of_topics.workers, facts(waiting=1), None, ""),
        (of_topics.retention, facts(todo=1, oldest_ms=39_999), "warning", "longer than"),
        (of_topics.retention, facts(todo=1, oldest_ms=40_000), None, ""),
        (of_topics.retention, facts(oldest_ms=1), None, ""),
        (of_topics.parked, facts(reports=FULL_SLOTS), "warning", "1, 3"),
        (of_topics.parked, facts(reports=(ConsumerReport(max_attempts=9),)), None, ""),
        (of_topics.breaker, facts(reports=OPEN), "warning", "7 failures in a row$"),
        (of_topics.breaker, facts(reports=OPEN, oldest_ms=40_000), "warning", "waited for"),
        (of_topics.breaker, facts(reports=(ConsumerReport(max_attempts=9),)), None, ""),
        (of_topics.dedupe_window, Topic("t", dedupe_window=60), None, ""),
        (of_topics.dedupe_window, Topic("t", dedupe_window=59), "warning", "59 s"),
        (lambda given: of_topics.leader(given, 5), facts(), "warning", "no worker leads"),
        (lambda given: of_topics.leader(given, 5), facts(workers=1), None, ""),
        (lambda given: of_topics.leader(given, None), facts(), None, ""),
    ],
)
def test_topics_and_groups_are_judged(
    check: Check, given: Any, level: str | None, word: str
) -> None:
    judged(check(given), level, word)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("redis://cache", "cache"),
        ("redis+cluster://a:7000,127.0.0.1:7001,b", "a, b"),
        ("redis+sentinel://user:p@a,b@localhost:1,c:2/primary", "c"),
        ("rediss://cache?ssl_cert_reqs=none", "cache"),
        ("zookeeper://zk1,zk2:2181/qframe", "zk1, zk2"),
        ("zookeepers://zk1?ssl_cert_reqs=none", "zk1"),
        ("postgresql+psycopg://shop:s@db/shop", "db"),
        ("postgresql+psycopg://shop@/shop?host=db", "db"),
        ("postgresql+psycopg://shop@db/shop?sslmode=require", "db"),
        ("mysql+pymysql://shop@db/shop", "db"),
        ("mariadb+pymysql://shop@db/shop?ssl_ca=ca.pem&ssl_verify_cert=false", "db"),
        ("mysql+pymysql://shop@db/shop?ssl_ca=ca.pem&ssl_disabled=true", "db"),
    ],
)
def test_a_server_elsewhere_that_is_not_checked_is_named(url: str, named: str) -> None:
    found = of_tls.unchecked(url)
    assert found is not None
    assert (found.check, found.level) == ("tls", "note")
    assert f"what goes to {named} may be read" in found.what
    assert ("ssl_ca" in found.remedy) != ("sslrootcert" in found.remedy)


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost", "redis+cluster://127.0.0.1:7000,[::1]:7001", "rediss://cache",
        "rediss://cache?ssl_cert_reqs=optional", "zookeepers://zk1", "sqlite:///shop.db",
        "postgresql+psycopg://shop@db/shop?sslmode=verify-full",
        "postgresql+psycopg://shop@db/shop?sslmode=verify-ca",
        "postgresql+psycopg://shop@/shop", "postgresql+psycopg://shop@/shop?host=/run/postgresql",
        "mysql+pymysql://shop@db/shop?ssl_ca=ca.pem",
        "mysql+pymysql://shop@db/shop?ssl_verify_identity=yes",
    ],
)  # fmt: skip
def test_what_is_checked_or_stays_on_this_machine_is_not_noted(url: str) -> None:
    assert of_tls.unchecked(url) is None


def test_postgresqls_mode_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert of_tls.unchecked("postgresql+psycopg://shop@db/shop") is None
    assert of_tls.unchecked("postgresql+psycopg://shop@db/shop?sslmode=prefer") is not None
