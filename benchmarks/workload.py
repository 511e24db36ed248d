"""The messages and the handler of every benchmark.

Bodies are of about 100 bytes; 5,000 keys (`stream` and `ordered`) or a key per message (the other
kinds, where an equal subject would be replaced); 16 slots; 500 messages to a call; 8 threads.
"""

from __future__ import annotations

KINDS = ("stream", "ordered", "delay", "priority", "merge")
KEYED = ("stream", "ordered")
KEYS = 5000
SLOTS = 16
PUBLISH = 500
THREADS = 8


def body(number: int) -> dict[str, object]:
    """A body of about 100 bytes."""
    return {
        "order": number, "status": "paid", "amount": 12.5, "customer": "someone",
        "note": "x" * 30,
    }  # fmt: skip


def key(kind: str, number: int) -> str:
    """The key of a message: one of 5,000 where order counts, else its own."""
    return f"k{number % KEYS}" if kind in KEYED else f"k{number}"
