"""A bank that allows 50 calls in a second, and falls silent for a while: nothing is lost.

    python -m examples.flow                    # SQLite, no other server
    python -m examples.flow redis://localhost  # or any store

It publishes 120 payments of 12 customers and runs `qframe worker examples.flow --processes 3`
until nothing is left. The workers share a limit of 50 payments in a second, and after the first 40
the bank does not answer for a second: breakers pause the workers, so that no payment spends its
attempts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from examples import command_line
from qframe import Breaker, Message, Outgoing, QFrame, RateLimit, Topic, consumer

PAYMENTS, CUSTOMERS = 120, 12
SILENT_AFTER, SILENT_S = 40, 1.0
LEDGER = "FLOW_LEDGER"

LIMIT = RateLimit("50/s", burst=10, over="group")
payments = Topic("payments", kind="ordered", slots=16)


class Bank:
    """The payment service: each call is a line of a file that all processes write."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger

    def pay(self, message: Message) -> None:
        """Books a payment.

        Raises:
            ConnectionError: while the bank does not answer.
        """
        now_s = time.monotonic()
        is_silent = self._is_silent(now_s)
        word = "refused" if is_silent else "paid"
        line = f"{now_s:.6f} {word} {message.key} {message.body}\n"
        with self._ledger.open("ab", buffering=0) as ledger:
            ledger.write(line.encode())
        if is_silent:
            raise ConnectionError("the bank does not answer")

    def calls(self) -> list[tuple[float, str, str, int]]:
        """All calls till now, in their order."""
        lines = [line.split() for line in self._ledger.read_text().splitlines()]
        return sorted((float(at), word, key, int(number)) for at, word, key, number in lines)

    def _is_silent(self, now_s: float) -> bool:
        paid = [at_s for at_s, word, _, _ in self.calls() if word == "paid"]
        if len(paid) < SILENT_AFTER:
            return False
        return now_s - paid[SILENT_AFTER - 1] < SILENT_S


@consumer(
    payments, group="bank", rate_limit=LIMIT, breaker=Breaker(3, pause="200ms", longest="400ms"),
    backoff="100ms",
)  # fmt: skip
def pay(message: Message) -> None:
    """Pays, if the bank answers."""
    Bank(Path(os.environ[LEDGER])).pay(message)


def main(store: str | None) -> None:
    """Publishes, runs the workers, and tells what the bank has seen."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        ledger.touch()
        os.environ["QFRAME_STORE"] = store or f"sqlite:///{folder}/qframe.db"
        os.environ[LEDGER] = str(ledger)
        with QFrame() as app:
            items = [Outgoing(each, key=f"customer-{each % CUSTOMERS}") for each in range(PAYMENTS)]
            app.publish_many(payments, items)
        subprocess.run(
            [sys.executable, "-m", "qframe", "worker", "examples.flow", "--processes", "3",
             "--burst"],
            check=True,
        )  # fmt: skip
        report(Bank(ledger).calls())


def report(calls: list[tuple[float, str, str, int]]) -> None:
    """How many calls there were, the most in any second, and whether all was paid in order."""
    times = [at_s for at_s, _, _, _ in calls]
    most = max(sum(1 for each in times if 0 <= each - at_s < 1) for at_s in times)
    refused = sum(word == "refused" for _, word, _, _ in calls)
    paid = [(key, number) for _, word, key, number in calls if word == "paid"]
    print(f"calls: {len(calls)}, {refused} of them refused; at most {most} in a second")
    once = sorted(number for _, number in paid) == list(range(PAYMENTS))
    in_order = all(
        numbers == sorted(numbers)
        for customer in range(CUSTOMERS)
        if (numbers := [number for key, number in paid if key == f"customer-{customer}"])
    )
    print(f"every payment once: {'yes' if once else 'NO'}")
    print(f"every customer in order: {'yes' if in_order else 'NO'}")
    if not (once and in_order):
        sys.exit(1)


if __name__ == "__main__":
    command_line.run(main, __doc__)
