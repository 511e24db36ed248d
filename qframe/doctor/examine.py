"""The examination: opens what the settings name, reads the facts, and makes all checks."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from qframe.admin.rounds import Rounds
from qframe.admin.totals import totals_in
from qframe.clock import Clock
from qframe.coordination.lease import LeaseCoordinator
from qframe.doctor import (
    redis_checks,
    sql_checks,
    store_checks,
    tls_checks,
    topic_checks,
    zookeeper_checks,
)
from qframe.doctor.findings import Examination, Finding, SettingFact, of_error
from qframe.drivers.redis import Redis
from qframe.drivers.schemes import scheme_of
from qframe.drivers.sql import Database, url_of
from qframe.drivers.zookeeper import ZooKeeper
from qframe.errors import QFrameError, StoreDamaged
from qframe.events import Events
from qframe.options.report import report_of
from qframe.options.settings import Settings, sources_of
from qframe.schedules.records import TOPIC as SCHEDULES
from qframe.schedules.records import next_due_ms
from qframe.stores.base import Store
from qframe.stores.open import MODEL, REDIS, open_store
from qframe.stores.pair import StorePair
from qframe.topic import Topic

TOLD_MS: Final = 30_000
"""For how long a worker's report counts: it is repeated every 10 s."""

SKEW_MS = 2000
_LEVELS = ("error", "warning", "note")


class _Examiner:
    """Collects what is found.

    Args:
        settings: the settings to examine.
        clock: this machine's clock.
        after: the name of the topic behind which those are whose groups are examined.
    """

    def __init__(self, settings: Settings, clock: Clock, after: str) -> None:
        self._settings = settings
        self._after = after
        self._clock = clock
        self.findings: dict[Finding, None] = {}
        self.versions = {"python": platform.python_version(), "qframe": version("qframe")}

    def note(self, found: Finding | None) -> None:
        """Keeps a finding, once."""
        if found is not None:
            self.findings[found] = None

    def examine(self) -> None:
        """Looks at the store, its topics, and the coordinator."""
        url = self._settings.store
        scheme = scheme_of(url)
        for finding in store_checks.not_opened(scheme):
            self.note(finding)
        try:
            if scheme in REDIS:
                self._redis(url)
                if self._settings.timers_db:
                    self._timers_db(self._settings.timers_db)
            elif scheme not in MODEL and not store_checks.is_registered(scheme):
                self._database(url, "store")
            if not any(each.level == "error" for each in self.findings):
                self._topics()
        except QFrameError as error:
            self.note(of_error("store", error))
        if self._settings.coordinator:
            try:
                self._zookeeper(self._settings.coordinator)
            except QFrameError as error:
                self.note(of_error("coordinator", error))

    def _redis(self, url: str) -> None:
        redis = Redis(url)
        servers: list[redis_checks.Facts] = []
        try:
            self.note(tls_checks.unchecked(url))
            redis.check(servers.append)
            for facts in servers:
                self.versions["redis"] = redis_checks.version_of(facts)
                for check in redis_checks.SERVER_CHECKS:
                    self.note(check(facts))
                self.note(redis_checks.awaited(facts, redis.replicas))
            self.note(redis_checks.rights(redis, self._settings.namespace))
            seconds, micros = redis.time(b"qf:doctor")
            self._skew(seconds * 1000 + micros // 1000)
        finally:
            redis.close()

    def _database(self, url: str, what: str) -> None:
        parsed = url_of(url)
        if (absent := sql_checks.absent(parsed, what)) is not None:
            self.note(absent)
            return
        database = Database(parsed.update_query_dict({"migrate": "no"}).render_as_string(False))
        try:
            if parsed.database and not database.backend.has_clock:
                self.note(sql_checks.space(Path(parsed.database).resolve().parent))
            self.note(tls_checks.unchecked(url))
            facts = sql_checks.facts_of(database)
            self.versions[database.backend.dialect.name] = facts.get("version", "")
            for check in sql_checks.DATABASE_CHECKS:
                self.note(check(database))
            for found in sql_checks.indexes(database):
                self.note(found)
            for check_facts in sql_checks.FACT_CHECKS:
                self.note(check_facts(facts))
            self.note(sql_checks.packets(facts, self._settings.max_body))
            if database.backend.has_clock:
                self._skew(database.read_autocommit(lambda transaction: transaction.now_ms()))
        finally:
            database.close()

    def _timers_db(self, url: str) -> None:
        try:
            self._database(url, "timers_db")
        except QFrameError as error:
            self.note(of_error("timers_db", error))

    def _zookeeper(self, url: str) -> None:
        asked_s = self._settings.session_timeout
        zookeeper = ZooKeeper(url, session_s=asked_s, on_state=lambda: None)
        try:
            self.note(tls_checks.unchecked(url))
            zookeeper.start(zookeeper_checks.START_S)
            self.note(zookeeper_checks.session(zookeeper, asked_s))
            self.note(zookeeper_checks.rights(zookeeper, self._settings.namespace))
            self.note(zookeeper_checks.ensemble(zookeeper))
        finally:
            zookeeper.close()

    def _topics(self) -> None:
        settings = self._settings
        store = open_store(
            settings.store, namespace=settings.namespace, clock=self._clock,
            timers_db=settings.timers_db,
        )  # fmt: skip
        try:
            everything = store.topics()
            for error in everything.unread:
                self.note(topic_checks.unknown(error))
            for topic in everything:
                for check in topic_checks.TOPIC_CHECKS:
                    self.note(check(topic))
            topics = [topic for topic in everything if topic.name > self._after]
            if isinstance(store, StorePair):
                for topic in store.astray():
                    self.note(topic_checks.astray(topic, totals_in(store.main, topic)))
            looked = Rounds[str](self._clock).look(topics, partial(self._topic, store))
            self.note(topic_checks.left_out(looked, len(topics)))
        finally:
            store.close()

    def _topic(self, store: Store, topic: Topic) -> str:
        """Checks the groups of a topic; returns its name."""
        for facts in self._groups(store, topic):
            for check_group in topic_checks.GROUP_CHECKS:
                self.note(check_group(facts))
            if topic.name == SCHEDULES.name:
                self.note(topic_checks.leader(facts, next_due_ms(store)))
        return topic.name

    def _groups(self, store: Store, topic: Topic) -> Iterator[topic_checks.GroupFacts]:
        """The facts of each group; workers count only where the store itself has the rosters."""
        now_ms = store.now_ms(topic)
        found = totals_in(store, topic)
        for group, why in found.damaged.items():
            self.note(_damage(topic, group, why))
        for totals in found.groups:
            if not (group := totals.group):
                continue
            try:
                alive = 1 if self._settings.coordinator else self._alive(store, topic, group)
                reports = store.reports(topic, group)
            except StoreDamaged as error:
                self.note(_damage(topic, group, error.why))
                continue
            told = tuple(
                report for one in reports
                if one.at_ms > now_ms - TOLD_MS and (report := report_of(one.text)) is not None
            )  # fmt: skip
            yield topic_checks.GroupFacts(topic, totals, alive, now_ms, told)

    def _alive(self, store: Store, topic: Topic, group: str) -> int:
        rosters = LeaseCoordinator(
            store, worker="doctor", session_s=self._settings.session_timeout, events=Events(),
            clock=self._clock, on_failure=lambda _part, _error: None,
        )  # fmt: skip
        return len(rosters.roster(topic, group).members)

    def _skew(self, server_ms: int) -> None:
        skew_ms = self._clock.now_ms() - server_ms
        way = "ahead of" if skew_ms > 0 else "behind"
        if abs(skew_ms) > SKEW_MS:
            self.note(Finding(
                check="clock", level="warning",
                what=f"this machine's clock is {abs(skew_ms) / 1000:.1f} s {way} the server's: "
                "moments given as at= shift",
                remedy="synchronise both clocks, as by NTP",
            ))  # fmt: skip


def _damage(topic: Topic, group: str, why: str) -> Finding:
    of_group = f"group {group} of " if group else ""
    return Finding(
        check="store", level="error", what=f"{of_group}topic {topic.name} is damaged: {why}",
        remedy=f"run qframe store verify {topic.name} to see where",
    )  # fmt: skip


def examine(settings: Settings, clock: Clock, after: str = "") -> Examination:
    """Examines what settings name; changes nothing, and raises nothing for what is wrong there.

    Groups are examined for half a second, those of topics whose names come after `after`; a note
    says where that was too short.
    """
    examiner = _Examiner(settings, clock, after)
    examiner.examine()
    findings = sorted(examiner.findings, key=lambda each: _LEVELS.index(each.level))
    facts = [
        SettingFact(name=name, value=value, source=source)
        for name, value, source in sources_of(settings)
    ]
    return Examination(versions=examiner.versions, settings=facts, findings=findings)
