"""Runs schemathesis against a gateway, by the gateway's own OpenAPI document.

python -m tests.support.schemathesis_run --st ST [--examples 100] [--seed 1] [--store URL]

ST is the command of schemathesis, which has a virtual environment of its own: it pins packages
that the tests have too. All its checks count, but for those that `NOT_MEANT` names with a reason.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from http.client import HTTPConnection
from pathlib import Path

from benchmarks.gateway import ask, started
from tests.support.ports import free_port

# A request that the document allows may still be refused: what a topic's kind asks of a message, or
# that one of two fields is given, is said in words.
NOT_MEANT = ("positive_data_acceptance",)
TOPICS = {"orders": "ordered", "later": "delay", "feed": "stream"}


def main() -> int:
    """Starts a gateway, has schemathesis ask it, and ends it; returns what that returned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--st", default="st")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        gateway = started(asked.store or f"sqlite:///{folder}/q.db", port)
        try:
            here = HTTPConnection("127.0.0.1", port)
            for topic, kind in TOPICS.items():
                ask(here, "PUT", f"/v1/topics/{topic}", {"kind": kind, "slots": 2})
            return subprocess.run(
                [asked.st, "run", f"http://127.0.0.1:{port}/v1/openapi.json", "--checks", "all",
                 "--exclude-checks", ",".join(NOT_MEANT), "--max-examples", str(asked.examples),
                 "--seed", str(asked.seed), "--continue-on-failure", "--request-timeout", "70",
                 "--max-response-time", "60"],
                cwd=folder, check=False,
                env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
                     "PYTHONPATH": str(Path(__file__).parent)},
            ).returncode  # fmt: skip
        finally:
            gateway.kill()
            gateway.wait()


if __name__ == "__main__":
    sys.exit(main())
