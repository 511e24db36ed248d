"""An exception that a signal's handler raises leaves no connection out of step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from servers import MariaDbServer, RedisServer
from sqlalchemy import text

from qframe.drivers.redis_connections import Node
from qframe.drivers.sql import Database, Statement, Transaction

FIVE = Statement(text("SELECT 5"), "")


class TimeIsUp(BaseException):
    """What a handler of SIGALRM raises."""


def test_an_answer_that_nobody_has_read_answers_no_other_statement(mariadb: MariaDbServer) -> None:
    database = Database(mariadb.new_database())

    def interrupted(transaction: Transaction) -> None:
        connection: Any = transaction._cursor.connection
        connection._execute_command(3, "DO 1")  # sent, and its answer is not read
        raise TimeIsUp

    for act in (database.write, database.read, database.read_autocommit):
        with pytest.raises(TimeIsUp):
            act(interrupted)
        assert act(lambda transaction: transaction.row(FIVE)) == (5,)
    database.close()


@pytest.mark.gate
def test_a_connection_that_is_half_made_is_not_used(redis_server: RedisServer) -> None:
    interrupts = [TimeIsUp()]

    def connect(connection: Any) -> None:
        if interrupts:
            raise interrupts.pop()
        connection.on_connect()

    pool = redis.ConnectionPool.from_url(redis_server.url, redis_connect_func=connect)
    node = Node(pool)
    with pytest.raises(TimeIsUp):
        node.begin()
    sending = node.begin()
    sending.add(0, b"*1\r\n$4\r\nPING\r\n")
    sending.flush()
    assert sending.replies() in ([b"PONG"], [True], ["PONG"])
    pool.disconnect()


@pytest.mark.gate
def test_a_handler_that_raises_while_a_command_is_packed_ends_no_process(tmp_path: Path) -> None:
    program = """
import signal
from qframe.drivers.redis import Command

class TimeIsUp(BaseException): pass

def raises(*_): raise TimeIsUp

signal.signal(signal.SIGALRM, raises)
command = Command(b"key", ("SADD", b"key", *range(3000)))
interrupted = 0
while interrupted < 50:
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        for _ in range(50):
            command.packed(True)
    except TimeIsUp:
        interrupted += 1
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (ended.returncode, ended.stderr) == (0, "")
