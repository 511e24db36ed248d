"""Faults in stores, whose tests need no simulator."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant, conforms

STORES: Final = [
    Mutant(
        "SQL settles under any epoch",
        "stores/sql/settle.py",
        "        elif one.epoch == cursor.epoch != NO_EPOCH:\n",
        "        else:\n",
        conforms("settle", "sqlite"),
    ),
    Mutant(
        "Redis settles under any epoch",
        "stores/redis/scripts/settle.lua",
        "if owner ~= epoch or epoch == '0000000000000000' then",
        "if epoch == '0000000000000000' then",
        conforms("settle", "redis"),
    ),
    Mutant(
        "Redis settles under any receipt",
        "stores/redis/scripts/settle.lua",
        "if not head or head.receipt ~= receipt or receipt == '' then",
        "if not head then",
        conforms("settle", "redis"),
    ),
    Mutant(
        "Redis rings no bell when a timer is moved",
        "stores/redis/scripts/parts/timer.lua",
        "  if #found > 0 then\n    ring(slot)\n  end\n",
        "",
        conforms("bell", "redis", "moved"),
    ),
    Mutant(
        "SQL rings no bell when a timer is moved",
        "stores/sql/timers.py",
        "        notify_messages(transaction, ref, [head.cursor % PER_TOPIC])\n",
        "",
        conforms("bell", "postgres", "moved"),
    ),
    Mutant(
        "Redis rings no bell for what is revoked",
        "stores/redis/scripts/revoke.lua",
        "if count_back > 0 then\n  ring(slot)\nend\n",
        "",
        conforms("bell", "redis", "revoked"),
    ),
]
