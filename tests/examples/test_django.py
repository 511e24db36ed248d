"""The example of a Django project: each order is billed once, and its own tests pass."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from checking import database_url, engine_of
from eventually import eventually
from programs import ROOT, python
from sqlalchemy import text

CLAIMS = [
    "80 orders, 80 bills",
    "all messages came again: 80 bills",
    "every order billed once, and no other: yes",
]
TAKING = """
from examples.django_shop import handlers
from django.core.management import call_command
from examples.django_shop.taking import take

call_command("migrate", run_syncdb=True, verbosity=0)
for number in range(20):
    take(f"customer-{number % 3}", number)
"""
OTHERS = "pid <> pg_backend_pid() AND datname = current_database()"


def environment(folder: Path, url: str) -> dict[str, str]:
    return {
        **os.environ, "PYTHONPATH": str(ROOT), "SHOP_DATABASE": url,
        "DJANGO_SETTINGS_MODULE": "examples.django_shop.settings",
        "QFRAME_STORE": f"sqlite:///{folder / 'queue.db'}",
    }  # fmt: skip


def run(folder: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = python(*words, cwd=folder, **environment(folder, url))
    assert done.returncode == 0, done.stdout + done.stderr
    return done


POOLED = """
from examples.django_shop.settings import *

DATABASES["default"]["CONN_MAX_AGE"] = 0
DATABASES["default"]["OPTIONS"] = {"pool": {"min_size": 1, "max_size": 2, "timeout": 30}}
"""
RECONNECTING = """
import django

django.setup()

from django.core.management import call_command
from django.db import close_old_connections, connection
from examples.django_shop.messages import engine, outbox
from examples.django_shop.models import Order
from examples.django_shop.taking import take

call_command("migrate", run_syncdb=True, verbosity=0)
for number in range(10):
    take("ann", number)
    assert outbox.pending() == number + 1
    engine.dispose()  # as when its connections are broken, or old
    close_old_connections()
assert Order.objects.count() == 10
pool = connection.pool.get_stats()
assert pool["pool_size"] <= 2 and not pool.get("requests_errors"), pool
print("done")
"""


def test_an_outbox_keeps_no_connection_of_djangos_own_pool(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    (tmp_path / "pooled.py").write_text(POOLED)
    variables = {
        **environment(tmp_path, database_url(request, "postgres", tmp_path)),
        "DJANGO_SETTINGS_MODULE": "pooled", "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
    }  # fmt: skip
    done = python("-c", RECONNECTING, cwd=tmp_path, **variables)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return database_url(request, request.param, tmp_path)


@pytest.mark.promise(2)
def test_every_order_is_billed_once_though_each_message_comes_twice(
    url: str, tmp_path: Path
) -> None:
    assert run(tmp_path, url, "-m", "examples.django_shop", url).stdout.splitlines() == CLAIMS


def test_the_projects_own_tests_pass_with_djangos_runner(url: str, tmp_path: Path) -> None:
    done = run(tmp_path, url, "-m", "django", "test", "examples.django_shop")
    assert "Ran 2 tests" in done.stderr


def test_a_worker_goes_on_after_its_database_has_closed_all_connections(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = database_url(request, "postgres", tmp_path)
    run(tmp_path, url, "-c", TAKING)
    worker = subprocess.Popen(
        [sys.executable, "-m", "qframe", "worker", "examples.django_shop.handlers"],
        cwd=tmp_path, env=environment(tmp_path, url), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with engine_of(url) as engine, engine.connect() as connection:

            def has(bills: int) -> bool:
                with connection.begin():
                    found = connection.scalar(text("SELECT count(*) FROM django_shop_bill"))
                return found == bills

            eventually(lambda: has(20))
            with connection.begin():
                connection.execute(
                    text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OTHERS}")
                )
            run(tmp_path, url, "-c", TAKING)
            eventually(lambda: has(40))
    finally:
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate()[1]
    assert worker.returncode == 0
    assert "delivery.retried" not in said, said
