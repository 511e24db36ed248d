"""Planted faults in ports, console and push."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

PORT: Final = UNIT + "test_http_port.py"
PARTS: Final = UNIT + "test_console_parts.py"
ACCESS: Final = UNIT + "test_web_access.py"
DOORS: Final = "tests/integration/web/test_doors.py"

PORTS: Final[list[Mutant]] = [
    Mutant(
        "a greedy client of the health port has the connections of others closed",
        "http_port.py",
        "next(task for task, its in self._addresses.items() if its == address)",
        "next(iter(self._addresses))",
        PORT,
    ),
    Mutant(
        "one holder has all the places that it asks for",
        "shares.py",
        "if held > self.free:",
        "if count > self.free:",
        f"{PORT} {PARTS}",
    ),
    Mutant(
        "a job of the console that has ended keeps its place",
        "web/jobs.py",
        "            self._running.give_back(job.by)\n",
        "",
        PARTS,
    ),
    Mutant(
        "a page that is made keeps its visitor's place",
        "web/console.py",
        "            self._at_once.give_back(name)\n",
        "            pass\n",
        DOORS,
    ),
    Mutant(
        "of two headers that name a user the first is believed",
        "web/access.py",
        'if len(named) == 1 else ""',
        'if named else ""',
        ACCESS,
    ),
    Mutant(
        "the console is called by any name",
        "web/access.py",
        "not self._checks_host or is_own_host(connection, self._hosts)",
        "True",
        DOORS,
    ),
    Mutant(
        "a cookie lets in for ever",
        "web/access.py",
        'return name if age_s < SIGNED_IN_S else ""',
        "return name",
        ACCESS,
    ),
    Mutant(
        "a hidden value is found inside of what has it",
        "admin/search.py",
        "return value if self.redact is None else without_hidden(value, self.redact)",
        "return value",
        PARTS,
    ),
    Mutant(
        "digits of all scripts are numbers",
        "digits.py",
        're.compile(r"-?[0-9]{1,18}")',
        're.compile(r"-?\\d{1,18}")',
        UNIT + "test_digits.py",
    ),
    Mutant(
        "a receiver's address may be one of protocol assignments",
        "push/special_addresses.py",
        '"192.0.0.0/24", ',
        "",
        UNIT + "test_push.py",
    ),
]
