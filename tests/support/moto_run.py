"""Runs moto's own tests of SQS against the SQS front, from a copy of moto's repository.

python -m tests.support.moto_run --python PYTHON [--store URL] MOTO [-- PYTEST ARGUMENTS]

MOTO is the folder that has moto's `tests/`, and PYTHON one that has moto, boto3, pytest and
freezegun. Port 5000 must be free: the tests name it. The tests of `test_server.py` start a server
of moto's own; `tests/support/moto_plugin.py` has them ask the front, by POST.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

PORT = 5000
ENDPOINT = f"http://localhost:{PORT}"
FILES = (
    "test_sqs.py", "test_server.py", "test_sqs_message_attributes.py",
    "test_sqs_multiaccount.py", "test_sqs_authentication.py",
)  # fmt: skip
ROOT = Path(__file__).parent.parent.parent
WAIT_S = 60


def main() -> int:
    """Starts the server, runs the tests, ends the server; returns what pytest returned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("moto", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--store")
    parser.add_argument("rest", nargs="*")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = asked.store or f"sqlite:///{folder}/moto.db"
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.moto_server", store, str(PORT)], cwd=ROOT
        )
        try:
            _wait()
            return _run(asked.python, asked.moto, asked.rest)
        finally:
            server.terminate()
            server.wait()


def _wait() -> None:
    """Waits until the server answers."""
    for _ in range(WAIT_S * 10):
        try:
            urllib.request.urlopen(f"{ENDPOINT}/moto-api/reset", data=b"", timeout=10)
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"nothing answers at {ENDPOINT}")


def _run(python: str, moto: Path, rest: list[str]) -> int:
    environment = {
        **os.environ, "TEST_SERVER_MODE": "true", "TEST_SERVER_MODE_ENDPOINT": ENDPOINT,
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1", "PYTHONPATH": str(Path(__file__).parent),
    }  # fmt: skip
    files = [f"tests/test_sqs/{name}" for name in FILES]
    return subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "moto_plugin", "-p", "no:cacheprovider", "--tb=short",
         *files, *rest],
        cwd=moto, env=environment, check=False,
    ).returncode  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
