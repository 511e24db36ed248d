"""Faults in parts that a share of simulated runs has: pulls, and relays."""

from __future__ import annotations

from typing import Final

from mutants.mutant import RELAY, UNIT, Mutant

BUFFER: Final = UNIT + "test_pull_buffer.py"
PULLS: Final = "tests/integration/consumers/test_pulling.py -k 'next_of_a_key and sqlite'"

PARTS: Final = [
    Mutant(
        "a pull hands out what is not this worker's any more",
        "runtime/executors/pull_buffer.py",
        "                if self._work.take_over(attempt):\n                    return attempt\n",
        "                self._work.take_over(attempt)\n                return attempt\n",
        BUFFER,
    ),
    Mutant(
        "a loop that waits hears nothing of what comes",
        "runtime/executors/pull_buffer.py",
        "            self._changed.notify(len(attempts))\n",
        "",
        BUFFER,
    ),
    Mutant(
        "a pull hands out what was given back",
        "runtime/executors/pull_buffer.py",
        "            self._waiting = deque(each for each, is_wanted in lying if not is_wanted)\n",
        "",
        BUFFER,
    ),
    Mutant(
        "what a loop takes is not left to its user",
        "runtime/consume/starter.py",
        "        self._in_hand.leave(attempt, has_returned=True)\n"
        "        return not attempt.settled\n",
        "        return not attempt.settled\n",
        PULLS,
    ),
    Mutant(
        "what a relay has brought into its topic stays in the outbox",
        "outbox/relay.py",
        "            self._rows.delete(connection, self._gone)\n            self._rows.unmark",
        "            self._rows.unmark",
        RELAY,
    ),
    Mutant(
        "what a relay has sent without a reply is deleted",
        "outbox/relay.py",
        "        except (StoreUnavailable, StoreFull):\n            self._refused(",
        "        except PublishUnknown:\n"
        "            self._gone |= {row.number: row.id for row in sound}\n            raise\n"
        "        except (StoreUnavailable, StoreFull):\n            self._refused(",
        RELAY,
    ),
    Mutant(
        "a relay publishes again what its topic may have forgotten",
        "outbox/relay.py",
        "row.sent_at is not None and not 0 <= row.now - row.sent_at <= trusted_ms",
        "row.sent_at is not None and row.now < row.sent_at",
        RELAY,
    ),
    Mutant(
        "a line is locked after its row is added",
        "outbox/outbox.py",
        "        for line, count in sorted(keyed.items()):\n"
        "            self._lock(transaction, line, count)\n"
        "        if len(rows) == 1:  # drivers take more round trips for a list\n"
        "            transaction.run(self.rows.add, rows[0])\n"
        "        else:\n"
        "            transaction.run_many(self.rows.add, rows)\n",
        "        if len(rows) == 1:  # drivers take more round trips for a list\n"
        "            transaction.run(self.rows.add, rows[0])\n"
        "        else:\n"
        "            transaction.run_many(self.rows.add, rows)\n"
        "        for line, count in sorted(keyed.items()):\n"
        "            self._lock(transaction, line, count)\n",
        "tests/integration/outbox/test_outbox.py",
    ),
    Mutant(
        "PostgreSQL commits whatever transaction there is",
        "idempotency/short_transaction.py",
        "CASE txid_current() WHEN {connection.txid:d} THEN '1' ELSE '{_ENDED}' END",
        "CASE txid_current() WHEN txid_current() THEN '1' ELSE '{_ENDED}' END",
        "tests/integration/checkers/test_checker_opening.py",
    ),
    Mutant(
        "a database that is away ends its relay",
        "outbox/relay.py",
        "        except self._database_errors as error:\n"
        '            return self._in_trouble("outbox.unavailable", in_one_line(error))\n',
        "",
        RELAY,
    ),
]
