"""The example of tests of handlers, run as its head says; its fixtures are pytest's plugin."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from programs import ROOT, python


def pytest_run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # Where qframe is installed the plugin is found by itself; here it may not be.
    return python("-m", "pytest", "-p", "qframe.testing.plugin", *arguments, cwd=cwd)


def test_the_examples_tests_pass_where_pytest_has_no_other_plugins() -> None:
    """A user of a clone has none of those that the project's own options want."""
    answer = pytest_run("-p", "no:timeout", "-p", "no:xdist", "examples/test_handlers.py")
    assert answer.returncode == 0, answer.stdout
    assert "14 passed" in answer.stdout


@pytest.mark.gate
def test_a_test_file_of_a_user_has_the_fixtures_and_may_name_its_own_app(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(
        "import pytest\n"
        "from qframe import QFrame\n"
        "app = QFrame(store='sqlite:////nowhere/at/all.db')\n"
        "app.consumer('orders', group='g')(lambda: None)\n"
        "@pytest.fixture\n"
        "def qframe_app():\n"
        "    return app\n"
        "def test_one(qframe_harness):\n"
        "    from qframe import Topic\n"
        "    qframe_harness.publish(Topic('orders'), 1)\n"
        "    assert qframe_harness.run_until_idle().acked == 1\n"
        "def test_the_next_begins_anew(qframe_harness):\n"
        "    assert qframe_harness.deliveries == []\n",
        encoding="utf-8",
    )
    answer = pytest_run("-W", "error", str(tmp_path), cwd=tmp_path)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "2 passed" in answer.stdout


def test_the_plugin_may_be_named_where_it_is_installed_too() -> None:
    """The entry point has the module's name, so that pytest takes both for one."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"qframe.testing.plugin" = "qframe.testing.plugin"' in project
