"""Faults of drivers, of growth, of what a pull has not heard of, and of what comes after an end."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant, conforms

DRIVER: Final = UNIT + "test_redis_driver.py"
CONNECTIONS: Final = UNIT + "test_redis_connections.py"
DATABASE: Final = UNIT + "test_sql_driver.py"
ERRORS: Final = UNIT + "test_sql_errors.py"
TURNS: Final = UNIT + "test_relay_turns.py"
DOUBLING: Final = UNIT + "test_doubling.py"
READAHEAD: Final = "tests/integration/stores/redis/test_readahead.py"
REFUSED_COMMANDS: Final = "tests/conformance/test_refused_commands.py"

DRIVERS: Final = [
    # What a server has done, and what not.
    Mutant(
        "what is done in part is told as not done",
        "drivers/redis.py",
        "if len(failed) < len(replies) or any(type(reply) is NoReply for reply in failed):",
        "if any(type(reply) is NoReply for reply in failed):",
        DRIVER,
    ),
    Mutant(
        "what is done is told as not done because of the request beside it",
        "drivers/redis.py",
        "[replies[number]] = self._replies_to((requests[number],), partly=partly)",
        "[replies[number]] = self.run((requests[number],), partly=partly)",
        DRIVER,
    ),
    Mutant(
        "a script follows a redirection beside keys that have not moved",
        "drivers/redis.py",
        "elif isinstance(reply, AskError) and number not in calls:",
        "elif isinstance(reply, AskError):",
        DRIVER,
    ),
    Mutant(
        "a script that a slow server does not know is not told to it",
        "drivers/redis.py",
        "is_late = (pauses or moved) and SYSTEM_CLOCK",
        "is_late = SYSTEM_CLOCK",
        DRIVER,
    ),
    Mutant(
        "what follows a request that was sent in part is sent",
        "drivers/redis_connections.py",
        "        if self._broken is None and self._pending:\n",
        "        if self._pending:\n",
        CONNECTIONS,
    ),
    Mutant(
        "a connection to which a reply is still to come is kept",
        "drivers/redis_connections.py",
        "        self.abandon()\n        return replies +",
        "        self._node.give_back(self._connection)\n        return replies +",
        CONNECTIONS,
    ),
    Mutant(
        "a Sentinel that is away is asked first each time",
        "drivers/redis_servers.py",
        "                sentinels[0], sentinels[number] = sentinel, sentinels[0]"
        "  # it is asked first now\n",
        "",
        UNIT + "test_redis_errors.py",
    ),
    Mutant(
        "a commit of which nobody knows is repeated because of another transaction",
        "drivers/sql.py",
        "if not stage.committing and conflicts < CONFLICTS and",
        "if conflicts < CONFLICTS and",
        DATABASE,
    ),
    Mutant(
        "a transaction whose connection is lost is repeated without end",
        "drivers/sql.py",
        "if stage.connected and not stage.committing and not losses:",
        "if stage.connected and not stage.committing:",
        DATABASE,
    ),
    Mutant(
        "a connection stays open that was opened after the close of its store",
        "drivers/sql.py",
        "(self._is_closed or pool is not backend.pool)",
        "pool is not backend.pool",
        "tests/unit/test_sql_driver.py",
    ),
    Mutant(
        "a connection stays open whose pool was given up meanwhile",
        "drivers/sql.py",
        "if (self._is_closed or pool is not backend.pool) and connection.is_valid:",
        "if False:",
        DATABASE,
    ),
    Mutant(
        "a transaction that PostgreSQL has ended is a mistake of ours",
        "drivers/sql_postgres.py",
        "if self.is_gone(error) or isinstance(",
        "if isinstance(",
        ERRORS,
    ),
    Mutant(
        "a server of PostgreSQL that says nothing is waited for without end",
        "drivers/sql_silence.py",
        "Connection.silent_s = silent_s",
        "Connection.silent_s = None",
        ERRORS,
    ),
    Mutant(
        "a listener does not ask whether its server is there",
        "drivers/sql_postgres.py",
        "min(timeout_s, CHECK_EVERY_S) * 1000",
        "timeout_s * 1000",
        ERRORS,
    ),
    Mutant(
        "one ZooKeeper that says nothing costs the whole session",
        "drivers/zookeeper.py",
        "self._invoke(min(timeout, self._answer_s), request, xid)",
        "self._invoke(timeout, request, xid)",
        UNIT + "test_zookeeper_driver.py",
    ),
    Mutant(
        "a start goes on though its time is over",
        "drivers/zookeeper.py",
        "max(0.0, until_s - SYSTEM_CLOCK.monotonic_s())",
        "until_s - SYSTEM_CLOCK.monotonic_s()",
        UNIT + "test_zookeeper_driver.py",
    ),
    Mutant(
        "what a cut has cost is not looked for after a look that failed",
        "coordination/zookeeper_session.py",
        "            self._was_cut = True\n            raise\n",
        "            self._stale = True\n            raise\n",
        UNIT + "test_zookeeper_session.py",
    ),
    Mutant(
        "a base of epochs is lowered by who has not read the last plan",
        "coordination/zookeeper_session.py",
        "            if base > plan.base:\n",
        "            if True:\n",
        UNIT + "test_zookeeper_session.py",
    ),
    Mutant(
        "a relay sends while it is not certain of its slots",
        "outbox/relay.py",
        "if self.stopping or not self._joined().certain():",
        "if self.stopping:",
        TURNS,
    ),
    Mutant(
        "a body that is larger than a batch stops its relay",
        "outbox/relay.py",
        "max(1, BATCH_BYTES * len(rows) // size)",
        "BATCH_BYTES * len(rows) // size",
        TURNS,
    ),
    Mutant(
        "a pull loop does not sleep beside a damaged slot",
        "runtime/feed/unanswered_pulls.py",
        "[*self._damaged.values(), *([self._again_s] if self._to_revoke else [])]",
        "[*self._damaged.values(), self._again_s]",
        UNIT + "test_standing_pulls.py",
    ),
    # Growth.
    Mutant(
        "the lease of a growth runs out while it waits for an owner",
        "stores/growth_lease.py",
        "now_s + self._lease_ms / LOOKS / 1000",
        "now_s + self._lease_ms / 1000",
        DOUBLING,
    ),
    Mutant(
        "what others have left of slots of an earlier doubling stays",
        "stores/doubling.py",
        "range(topic.growth.first + topic.growth.split)",
        "range(topic.growth.first, topic.growth.first + topic.growth.split)",
        DOUBLING,
    ),
    Mutant(
        "of what came before a slot was closed one page is copied",
        "stores/splitting.py",
        "            while self._copy_log():\n                pass\n            if self._head()",
        "            self._copy_log()\n            if self._head()",
        UNIT + "test_splitting.py",
    ),
    Mutant(
        "a message of a split slot goes by its key though it has a basis of its own",
        "producing/entry.py",
        "        entry.hash = crc32(basis.encode())\n"
        "        entry.slot = topic.slot_of_hash(entry.hash)",
        "        entry.slot = topic.slot_of_hash(crc32(basis.encode()))",
        UNIT + "test_producer_growth.py",
    ),
    Mutant(
        "Redis does not fence an owner whose epoch ends in ones",
        "stores/redis/scripts/close.lua",
        "    if low == 4294967295 then\n      high, low = high + 1, -1\n    end\n",
        "",
        conforms("growing", "redis", "who_hears_of_it"),
    ),
    Mutant(
        "an operator changes a timer in a slot that is being copied, in Redis",
        "stores/redis/scripts/rewrite.lua",
        "if is_closed(slot) then\n  return refusal()\nend\n",
        "",
        conforms("growing", "redis", "whatever_an_operator_does"),
    ),
    # Rights that are taken away.
    Mutant(
        "no script asks for its rights before it writes",
        "drivers/scripts.py",
        'text = _HEAD.sub(r"\\g<0>--@may\\n", text)',
        "pass",
        REFUSED_COMMANDS,
    ),
    Mutant(
        "a script asks with a key that may be written where others may not",
        "drivers/scripts.py",
        "KEYS[1] .. '*', redis",
        "KEYS[1], redis",
        REFUSED_COMMANDS,
    ),
    Mutant(
        "a plain publish does not ask whether it may note its mark",
        "stores/redis/scripts/publish_stream.lua",
        "--@may XADD ZADD",
        "--@may XADD",
        REFUSED_COMMANDS,
    ),
    Mutant(
        "an ordered publish does not ask for what counts",
        "stores/redis/scripts/publish_subjects.lua",
        "--@may HINCRBY HMGET",
        "--@may HMGET",
        REFUSED_COMMANDS,
    ),
    Mutant(
        "a refusal of some slots is told as one of all",
        "drivers/redis.py",
        "if isinstance(fault, StoreForbidden) and len(failed) < len(replies):",
        "if False:",
        DRIVER,
    ),
    Mutant(
        "a script that was killed is taken for damage",
        "drivers/redis_errors.py",
        '"Script killed by user", ',
        "",
        "tests/integration/stores/redis/test_connections.py -k killed",
        "test-all",
    ),
    Mutant(
        "a member takes heart before its consumer has lost what it dropped",
        "coordination/member.py",
        "            if self._telling:\n                return\n",
        "",
        UNIT + "test_member.py",
    ),
    Mutant(
        "drained slots wait until no slot has more",
        "runtime/feed/ask_planner.py",
        "most = DRAINED_AT_ONCE + self._got // MESSAGES_FOR_EACH",
        "most = 0",
        UNIT + "test_ask_planner.py",
    ),
    Mutant(
        "a look takes slots for looked at that were asked before it",
        "runtime/feed/pull_loop.py",
        "            self._is_asked_to_look = False\n            planner.look_everywhere()\n",
        "            self._is_asked_to_look = False\n",
        UNIT + "test_pull_steps.py",
    ),
    Mutant(
        "turns begin with the first slot each time",
        "runtime/feed/ask_planner.py",
        "self._first = taken[-1 if len(taken) < len(numbers) else 0] + 1",
        "self._first = numbers[0]",
        UNIT + "test_ask_planner.py",
    ),
    # How much is read ahead.
    Mutant(
        "what is read ahead is kept however much it is",
        "stores/redis/log_readahead.py",
        "        if total > most_bytes:\n",
        "        if total > 2**40:\n",
        READAHEAD,
    ),
    Mutant(
        "a log is read ahead by as many entries as there may be",
        "stores/redis/log_readahead.py",
        "min(MOST_ENTRIES, -(-missing // size))",
        "MOST_ENTRIES",
        READAHEAD,
    ),
    Mutant(
        "what is read ahead takes no room",
        "runtime/flow/in_flight.py",
        "self._max_bytes - self._bytes - self.ahead_bytes",
        "self._max_bytes - self._bytes",
        UNIT + "test_in_flight.py",
    ),
    Mutant(
        "nobody counts what is read ahead",
        "runtime/feed/pull_loop.py",
        "        self._in_flight.ahead_bytes = pulled.ahead_bytes\n",
        "",
        UNIT + "test_pull_steps.py",
    ),
    # What comes after an end.
    Mutant(
        "what stood behind a message that is cancelled comes back with its key, in Redis",
        "stores/redis/scripts/rewrite.lua",
        "    redis.call('DEL', behind_of(group, subject))\n",
        "",
        conforms("timers", "redis", "takes_all"),
    ),
    Mutant(
        "a claim leaves a member on the roster whose lease has passed",
        "stores/rosters.py",
        "        seen = _cleared(store, topic, group)\n        if _write_owners",
        "        seen = _Seen(store.list_documents(topic, group, Space.ROSTER))\n"
        "        if _write_owners",
        conforms("rosters", "model", "whoever_drops"),
    ),
    Mutant(
        "a database reads a line anew whose part was given again",
        "stores/sql/window.py",
        "cursor.read = max(cursor.read, rows[-1][0] + 1)",
        "cursor.read = rows[-1][0] + 1",
        conforms("leases", "sqlite", "stays_read"),
    ),
    Mutant(
        "slots that were split tell of earlier messages of a key",
        "stores/history.py",
        "    return [entry for entry in entries if entry.slot == last[entry.group]]\n",
        "    return list(entries)\n",
        conforms("growing", "sqlite", "last_of_its_key"),
    ),
]
