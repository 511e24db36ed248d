"""Faults that a law finds which is written once, where it had stood in a test of its own."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant, conforms

GROWING: Final = "tests/integration/stores/redis/test_growing.py -k 'closed_slot and "
PLANS: Final = "tests/integration/stores/sql/test_plans.py -k primary_key"

SLIMMING: Final = [
    Mutant(
        "a claim that another was faster to make is taken for one's own",
        "coordination/lease.py",
        "mine | dict.fromkeys(claimed, epoch)",
        "mine | dict.fromkeys(free, epoch)",
        UNIT + "test_sharing.py -k faster",
    ),
    Mutant(
        "a group is dropped from a table while a slot is being split",
        "stores/sql/groups.py",
        "    check_splitting(transaction, ref)\n    return drop_locked",
        "    return drop_locked",
        "tests/conformance/test_growing.py -k 'sqlite and an_operator_does'",
    ),
    Mutant(
        "what stood in a slot that was split is looked for there",
        "stores/edits.py",
        "        return [slot for slot in topic.all_slots if slot == self.slot]\n",
        "        return [] if self.slot is None else [self.slot]\n",
        conforms("edits", "model", "left_alone"),
    ),
    Mutant(
        "subjects are joined as the planner of PostgreSQL likes it",
        "stores/sql/lookups.py",
        'c.subject.between(w.c["of"], w.c["of"]))\n'
        '        h = one.order_by(c.subject).limit(1).lateral("h")',
        'c.subject == w.c["of"])\n        h = one.lateral("h")',
        PLANS,
        "test-all",
    ),
    Mutant(
        "all that stands behind a subject of PostgreSQL is read",
        "stores/sql/lookups.py",
        'line.order_by(backlog.c.seq).limit(w.c["most"]).lateral("b")',
        'line.lateral("b")',
        PLANS,
        "test-all",
    ),
    Mutant(
        "tables of MariaDB are changed without their lock",
        "drivers/sql_mariadb.py",
        "        if cursor.fetchone()[0] != 1:\n",
        "        if cursor.fetchone() is None:\n",
        UNIT + "test_sql_errors.py -k does_not_get_the_lock",
    ),
    Mutant(
        "statements of many rows leave no room in a packet of MariaDB",
        "drivers/sql_mariadb.py",
        "min(cursor.max_stmt_length, self._longest - ROOM)",
        "min(cursor.max_stmt_length, self._longest)",
        UNIT + "test_sql_errors.py -k fit_into_a_packet",
    ),
    Mutant(
        "a listener of PostgreSQL that cannot listen fails with the driver's own error",
        "drivers/sql_postgres.py",
        'connection.execute(f"LISTEN {CHANNEL}")\n            except self.failures as error:',
        'connection.execute(f"LISTEN {CHANNEL}")\n            except OSError as error:',
        UNIT + "test_sql_errors.py -k connection_is_lost",
    ),
    Mutant(
        "a handler that raises leaves what it has to settle itself unsettled",
        "runtime/consume/finisher.py",
        "left = [attempt for attempt in unit if attempt.is_open]\n",
        "left = [attempt for attempt in unit if attempt.is_open and attempt.auto_ack]\n",
        UNIT + "test_harness.py -k shows_its_error",
    ),
    Mutant(
        "workers that die again and again are restarted twice a second",
        "runtime/process/supervisor.py",
        "Backoff(first=0.5, factor=2.0, cap=30.0)",
        "Backoff(first=0.5, factor=2.0, cap=0.5)",
        UNIT + "test_supervising.py -k counted_in_a_row",
    ),
    Mutant(
        "every connection to Redis reads the package's files",
        "drivers/redis_servers.py",
        '        "driver_info": _driver_info(),\n',
        "",
        UNIT + "test_redis_errors.py -k sentinels_have_options",
    ),
]
