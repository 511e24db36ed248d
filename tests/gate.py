"""What `make test` runs of the suite: the gate. `make test-all` runs everything, or parts of it.

A test is in the gate, unless

- its folder is one of `EDGES`, whose tests start processes, servers and browsers, and it is not
  marked `gate`. The marked ones show that an edge works at all, or find what no other test finds;
- it runs a store on one of `SERVERS`, and is neither in a file of `MACHINES` nor drawn today. One
  Redis and SQLite run the same scripts and statements, and the machines reach every operation on
  every server. Each day draws another share of the rest, by a seed that the run prints.

A planted fault (`tests/mutants`) that is found without the drawn tests is found by the gate.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol
from zlib import crc32

TESTS: Final = Path(__file__).parent
EDGES: Final = ("integration/", "chaos/", "simulation/", "spark/", "examples/")
SERVERS: Final = ("postgres", "mariadb", "redis-cluster")
MACHINES: Final = ("conformance/test_state_machine.py", "conformance/test_roster_machine.py")
SHARE: Final = 0.08
"""How much of the tests on `SERVERS` a day draws."""
DRAWS_NONE: Final = -1

PARTS: Final = {
    "batching": ("batch", "buffered"),
    "checkers": ("checker", "effect", "claims", "exactly_once", "payments", "at_most_once"),
    "cli": ("/cli", "warm_program"),
    "console": ("/web/", "web_", "console"),
    "consumers": ("/consumers/", "/flow/", "/matrix/", "user_types"),
    "coordination": (
        "/coordination/", "zookeeper", "ownership", "roster", "sharing", "member", "tenures",
    ),
    "docs": ("test_docs", "reference_pages", "public_api", "promises", "/examples/", "alerts"),
    "doctor": ("doctor", "explain", "health", "metrics", "verify"),
    "gateway": ("/gateway/", "gateway", "open_group", "request_parts"),
    "growth": ("grow", "splitting", "doubling"),
    "kills": ("/chaos/",),
    "outbox": ("/outbox/", "relay", "/publishing/"),
    "push": ("push",),
    "redis": ("redis", "/conformance/"),
    "schedules": ("schedule",),
    "simulation": ("/simulation/", "/interleaving/"),
    "spark": ("/spark/",),
    "sql": ("/sql/", "sql_", "postgres", "/servers/", "/conformance/"),
    "sqs": ("sqs",),
    "stores": ("/conformance/", "/interleaving/", "/stores/", "store_", "/servers/"),
    "timers": ("timer",),
    "workers": ("/workers/", "/chaos/", "stacks", "versions", "threads", "newer_records"),
}  # fmt: skip
"""What `make test-all ARGS="gateway sqs"` can name: words in the paths of a part's files."""


class Item(Protocol):
    """A test of pytest's, as far as the gate goes."""

    @property
    def nodeid(self) -> str: ...

    def get_closest_marker(self, name: str) -> object: ...


def seed_of_today() -> int:
    """A seed that changes at midnight, UTC."""
    return datetime.now(UTC).toordinal()


def is_in_gate(item: Item, seed: int) -> bool:
    """Whether a test is in the gate, with what a seed draws."""
    file = file_of(item.nodeid)
    if file.startswith(EDGES):
        return item.get_closest_marker("gate") is not None
    if server_of(item.nodeid) is None or file in MACHINES:
        return True
    return seed != DRAWS_NONE and crc32(f"{seed} {item.nodeid}".encode()) < SHARE * 2**32


def may_be_in_gate(path: Path) -> bool:
    """Whether a file has a test of the gate, by its text: other files need not be imported."""
    file = path.relative_to(TESTS).as_posix()
    return not file.startswith(EDGES) or "mark.gate" in path.read_text(encoding="utf-8")


def is_in_part(path: Path, part: str) -> bool:
    """Whether a file belongs to one of `PARTS`."""
    file = f"/{path.relative_to(TESTS).as_posix()}"
    return any(word in file for word in PARTS[part])


def file_of(nodeid: str) -> str:
    """A test's file, below `tests/`."""
    return nodeid.partition("::")[0].removeprefix("tests/")


def server_of(nodeid: str) -> str | None:
    """The one of `SERVERS` on which a test runs a store."""
    if not file_of(nodeid).startswith(("conformance/", "interleaving/")):
        return None
    named = re.search(rf"[\[-]({'|'.join(SERVERS)})[\]-]", nodeid)
    return named and named[1]
