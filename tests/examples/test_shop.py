"""The example of a shop's backend: it keeps its sums while workers are killed; its tests pass."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatch

import pytest
from click.testing import CliRunner
from programs import ROOT, python

from qframe.cli.main import cli

DEPLOY = ROOT / "examples" / "shop" / "deploy"
CLAIMS = 8


@pytest.mark.promise(2)
def test_every_sum_is_right_though_workers_are_killed_under_load() -> None:
    done = python("-W", "error", "-m", "examples.shop", "--orders", "120", "--kills", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" yes") == CLAIMS
    assert "3 workers were killed" in done.stdout


def test_the_shops_own_tests_pass() -> None:
    done = python("-m", "pytest", "-p", "qframe.testing.plugin", "examples/shop")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout


@pytest.mark.parametrize("name", ["Dockerfile", "kubernetes.yaml", "shop-workers.service"])
def test_a_file_for_deployment_starts_workers_with_options_that_exist(name: str) -> None:
    text = re.sub(r'[\[\],"]', "", (DEPLOY / name).read_text(encoding="utf-8"))
    [command] = re.findall(r"qframe (worker .*)", text)
    # Wrong options are refused before help is shown.
    shown = CliRunner().invoke(cli, [*shlex.split(command), "--help"])
    assert shown.exit_code == 0, shown.output


def test_the_image_is_built_without_the_environment_and_with_all_that_it_runs() -> None:
    text = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    left_out = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert {".git", ".venv"} <= set(left_out)
    needed = ("pyproject.toml", "README.md", "LICENSE", "qframe", "qframe_ping.py", "examples")
    for name in needed:
        assert (ROOT / name).exists()
        assert not [each for each in left_out if fnmatch(name, each)]


def test_the_address_that_an_autoscaler_asks_is_a_service_of_the_workers_health_port() -> None:
    page = (ROOT / "docs" / "autoscaling.md").read_text(encoding="utf-8")
    [(host, port)] = re.findall(r"url: http://([\w-]+):(\d+)/scale/", page)
    resources = (DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8").split("\n---\n")
    [service] = [each for each in resources if "\nkind: Service\n" in each]
    assert f"\n  name: {host}\n" in service
    assert f"port: {port}, targetPort: health" in service
    [(label, value)] = re.findall(r"selector: {(\w+): ([\w-]+)}", service)
    [workers] = [each for each in resources if "qframe, worker" in each]
    assert f"labels: {{{label}: {value}}}" in workers
    assert f"containerPort: {port}, name: health" in workers
