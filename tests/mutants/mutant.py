"""One planted fault, and where tests are that may find it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Finder = Literal["gate", "test-all", "simulator"]


class Mutant(NamedTuple):
    """One change that a later hand might make.

    Attributes:
        name: what it does.
        path: the module, below `qframe/`.
        old: what stands there, once.
        new: what stands there then.
        tests: the tests that find it, as arguments of pytest.
        finder: which run finds it: `make test` on every day, `make test-all`, or `make simulate`.
    """

    name: str
    path: str
    old: str
    new: str
    tests: str
    finder: Finder = "gate"


UNIT: Final = "tests/unit/"
PULL: Final = " ".join(
    f"{UNIT}test_{name}.py" for name in ("pull_steps", "pull_loop", "standing_pulls")
)
KEEPING: Final = UNIT + "test_keeping.py"
SETTLER: Final = UNIT + "test_settler.py"
RENEWER: Final = UNIT + "test_lease_renewer.py"
SLOTS: Final = UNIT + "test_slots.py"
MEMBER: Final = f"{UNIT}test_member.py {UNIT}test_sharing.py {UNIT}test_handover.py"
WORKER: Final = "tests/integration/workers/test_worker.py"
SESSIONS: Final = "tests/integration/coordination/test_coordinator_sessions.py"
RELAY: Final = "tests/integration/outbox/test_relay.py"


def conforms(role: str, store: str, words: str = "") -> str:
    """The conformance tests of a role on one store, those with some words in their names."""
    alone = f"{store} and not cluster" if store == "redis" else store
    words = f" and {words}" if words else ""
    return f"tests/conformance/test_{role}.py -k '{alone}{words}'"


def inside(store: str) -> str:
    """Operations that are run inside each other on one store."""
    return f"tests/interleaving/test_interleaving.py -k {store}"
