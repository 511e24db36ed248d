"""Three workers share a topic's slots: every key has one of them at a time, and keeps its order.

    python -m examples.sharing                    # SQLite, no other server
    python -m examples.sharing redis://localhost  # or any store; coordinator: QFRAME_COORDINATOR

It publishes 1,200 events of 60 customers, runs `qframe worker examples.sharing --processes 3` until
nothing is left, and then looks at what each process has written down.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from examples import command_line
from qframe import Message, Outgoing, QFrame, Topic, consumer

EVENTS, CUSTOMERS = 1_200, 60
DIARY = "SHARING_DIARY"

visits = Topic("visits", kind="ordered", slots=16)


@consumer(visits, group="diary", threads=4)
def note(message: Message) -> None:
    """Writes who has handled what; a single write, so that processes do not mix."""
    time.sleep(0.02)  # some work
    line = f"{os.getpid()} {message.key} {message.body}\n"
    with Path(os.environ[DIARY]).open("ab", buffering=0) as diary:
        diary.write(line.encode())


def main(store: str | None) -> None:
    """Publishes, runs the workers, and tells what they have done."""
    with tempfile.TemporaryDirectory() as folder:
        diary = Path(folder) / "diary"
        diary.touch()
        os.environ["QFRAME_STORE"] = store or f"sqlite:///{folder}/qframe.db"
        os.environ[DIARY] = str(diary)
        with QFrame() as app:
            app.publish_many(
                visits,
                [
                    Outgoing(number, key=f"customer-{number % CUSTOMERS}")
                    for number in range(EVENTS)
                ],
            )
        subprocess.run(
            [sys.executable, "-m", "qframe", "worker", "examples.sharing", "--processes", "3",
             "--burst"],
            check=True,
        )  # fmt: skip
        report([line.split() for line in diary.read_text().splitlines()])


def report(lines: list[list[str]]) -> None:
    """How the work was shared, and whether every customer's events came once and in order."""
    for pid, count in sorted(Counter(pid for pid, _, _ in lines).items()):
        customers = len({key for each, key, _ in lines if each == pid})
        print(f"worker {pid}: {count} events of {customers} customers")
    in_order = all(
        numbers == sorted(numbers)
        for customer in range(CUSTOMERS)
        if (numbers := [int(n) for _, key, n in lines if key == f"customer-{customer}"])
    )
    once = sorted(int(number) for _, _, number in lines) == list(range(EVENTS))
    print(f"every event once: {'yes' if once else 'NO'}")
    print(f"every customer in order: {'yes' if in_order else 'NO'}")
    if not (once and in_order):
        sys.exit(1)


if __name__ == "__main__":
    command_line.run(main, __doc__)
