"""`qframe bench`: measures each kind, and leaves nothing but the audit's lines."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from cli_program import Program, eventually
from servers import RedisServer

from qframe import Kind
from qframe.errors import UnknownGroup

QUICK = ("--count", "1000")


def test_it_measures_every_kind_and_deletes_its_topics(
    program: Program, redis_server: RedisServer
) -> None:
    where = ("--store", redis_server.url, "--namespace", f"bench-{uuid4().hex[:12]}")
    measured = program.ok("bench", "--yes", "--json", *QUICK, *where).json
    assert [each["kind"] for each in measured] == list(Kind)
    for each in measured:
        assert 0 < each["publish_p50_us"] <= each["publish_p99_us"]
        assert 0 < each["handler_p50_us"] <= each["handler_p99_us"]
        assert each["publish_many_per_s"] > 0
        assert each["handled_per_s"] > 0
    assert program.ok("topics", "list", "--json", *where).json == [
        {**audit, "name": "qframe.audit"}
        for audit in program.ok("topics", "list", "--all", "--json", *where).json
    ]
    done = program.ok("store", "audit", "--json", *where).json
    assert [each["verb"] for each in done] == ["delete_topic"] * len(Kind)


def test_it_asks_first_and_shows_a_row_for_each_kind(tmp_path: Path) -> None:
    program = Program(tmp_path)
    words = ("bench", "--kind", "delay", "--kind", "merge", *QUICK)
    declined = program.run(*words, stdin="n\n")
    assert declined.code == 1
    asked = "Publish and handle 1000 messages of 2 kinds in sqlite:///qframe.db? [y/N] "
    assert declined.err == f"{asked}nothing was changed\n"
    assert not (tmp_path / "qframe.db").exists()
    agreed = program.ok(*words, stdin="y\n")
    assert agreed.err == f"{asked}measuring delay …\nmeasuring merge …\n"
    head, *rows = agreed.out.splitlines()
    assert head.split()[0] == "kind"
    assert [row.split()[0] for row in rows] == ["delay", "merge"]
    assert all(len(row.split()) == 7 for row in rows)


def test_ctrl_c_deletes_its_topic(tmp_path: Path) -> None:
    program = Program(tmp_path)
    words = [sys.executable, "-m", "qframe", "bench", "--yes", "--count", "1000000"]
    running = subprocess.Popen(
        words, cwd=tmp_path, env=program.environment(), stderr=subprocess.PIPE, encoding="utf-8"
    )

    def published() -> int:
        with program.app() as app, suppress(UnknownGroup):  # the topic is there before its group
            return sum(
                stats.published
                for topic in app.store.topics()
                if topic.name.startswith("bench-")
                for stats in app.store.stats(topic, "bench")
            )
        return 0

    eventually(lambda: (tmp_path / "qframe.db").exists(), within_s=60)
    eventually(lambda: published() > 1000, within_s=60)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (130, "measuring stream …\n")
    with program.app() as app:
        assert [topic.name for topic in app.store.topics()] == ["qframe.audit"]
