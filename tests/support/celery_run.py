"""Celery with `sqs://` as its broker, over the gateway: tasks done while its workers are killed.

python -m tests.support.celery_run --python PYTHON [--tasks 1000] [--kills 6] [--store URL]

PYTHON is one that has `celery[sqs]`. A gateway is started, then two workers of two processes each.
While the tasks are done the workers are killed, one after the other, with SIGKILL, and started
again. Each task writes its number into a file. At the end every task was done; how many were done
more than once is told, since Celery with late acknowledgement promises at least once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support.ports import free_port

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
import os
import time

from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER"])
app.conf.update(
    broker_transport_options={
        "region": "us-east-1", "is_secure": False, "visibility_timeout": 10,
        "wait_time_seconds": 2, "polling_interval": 0.1,
    },
    task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=4,
    worker_enable_remote_control=False, task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)


@app.task
def note(number):
    time.sleep(0.01)
    with open(os.environ["DONE"], "a") as file:
        file.write(f"{number}\\n")


def send(count):
    for number in range(count):
        note.delay(number)
"""


class Workers:
    """Workers of Celery, which can be killed."""

    def __init__(self, python: str, folder: Path, environment: dict[str, str]) -> None:
        self._command = [
            python,
            "-m",
            "celery",
            "-A",
            "tasks",
            "worker",
            "-c",
            "2",
            "-l",
            "WARNING",
        ]
        self._folder = folder
        self._environment = environment
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Starts a worker, in a group of processes of its own."""
        self._running[name] = subprocess.Popen(
            [*self._command, "-n", f"{name}-{time.monotonic_ns()}@h"], cwd=self._folder,
            env=self._environment, start_new_session=True,
        )  # fmt: skip

    def kill(self, name: str) -> None:
        """Kills a worker with all its processes."""
        worker = self._running.pop(name)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def end(self) -> None:
        """Kills all."""
        for name in list(self._running):
            self.kill(name)


def main() -> int:
    """Runs it; returns 0 if every task was done."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--store")
    parser.add_argument("--within", type=float, default=300.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        (folder / "tasks.py").write_text(PROGRAM, encoding="utf-8")
        done = folder / "done"
        done.touch()
        port = free_port()
        gateway = subprocess.Popen(
            [sys.executable, "-m", "qframe", "gateway", "--sqs", "--port", str(port),
             "--store", asked.store or f"sqlite:///{folder}/celery.db"], cwd=ROOT
        )  # fmt: skip
        environment = {
            **os.environ,
            "BROKER": f"sqs://local:any@localhost:{port}//",
            "DONE": str(done),
        }
        workers = Workers(asked.python, folder, environment)
        try:
            began = time.monotonic()
            _send(asked.python, folder, environment, asked.tasks)
            _say(f"{asked.tasks} tasks sent in {time.monotonic() - began:.1f} s")
            began = time.monotonic()
            killed = _work(workers, done, asked.tasks, asked.kills, asked.within)
            counts = Counter(done.read_text(encoding="utf-8").split())
            again = sum(counts.values()) - len(counts)
            _say(
                f"{len(counts)} of {asked.tasks} tasks done in {time.monotonic() - began:.1f} s, "
                f"{killed} workers killed, {again} tasks done again"
            )
            return 0 if len(counts) == asked.tasks else 1
        finally:
            workers.end()
            gateway.terminate()
            gateway.wait()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _send(python: str, folder: Path, environment: dict[str, str], count: int) -> None:
    """Sends the tasks, once the gateway answers."""
    for _ in range(30):
        ran = subprocess.run(
            [python, "-c", f"import tasks; tasks.send({count})"], cwd=folder, env=environment,
            check=False, capture_output=True,
        )  # fmt: skip
        if ran.returncode == 0:
            return
        time.sleep(1)
    raise SystemExit(ran.stderr.decode())


def _work(workers: Workers, done: Path, tasks: int, kills: int, within_s: float) -> int:
    """Has the tasks done, and kills a worker each time that so many more of them are."""
    names = ["one", "two"]
    for name in names:
        workers.start(name)
    until = time.monotonic() + within_s
    killed = 0
    while time.monotonic() < until:
        count = len(set(done.read_text(encoding="utf-8").split()))
        if count >= tasks:
            break
        if killed < kills and count >= (killed + 1) * tasks // (kills + 1):
            name = names[killed % 2]
            workers.kill(name)
            killed += 1
            workers.start(name)
        time.sleep(0.1)
    return killed


if __name__ == "__main__":
    sys.exit(main())
