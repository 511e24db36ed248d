"""The suite of conformance as another project has it: from a wheel, on a store of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from distributions import installed
from programs import ROOT

LAWS = ROOT / "tests" / "conformance"
NOT_OURS_ALONE = {"refusing.py", "test_refused_commands.py"}  # of users that Redis refuses
SHARE = ("test_documents", "test_rosters", "test_runs", "test_copying", "test_roster_machine")
CODE = """
from qframe.outcomes import Outcome
from qframe.stores.model.store import ModelStore

class Shelf(ModelStore):
    "The model under another scheme."

class Forgetful(ModelStore):
    "Says that it has stored what it has dropped."

    def publish(self, topic, entries):
        return [Outcome.STORED for _ in entries]

def shelf(url, *, namespace, clock):
    return Shelf(namespace=namespace, clock=clock)

def forgetful(url, *, namespace, clock):
    return Forgetful(namespace=namespace, clock=clock)
"""


class Elsewhere(NamedTuple):
    """An environment with qframe's wheel, what it depends on, and a store of another distribution.

    Attributes:
        wheel: the wheel.
        python: the interpreter.
        folder: an empty directory.
        path: what is beside the environment's own packages.
    """

    wheel: Path
    python: Path
    folder: Path
    path: Path

    def suite(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs pytest on the suite."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        return subprocess.run(
            [self.python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *words],
            cwd=self.folder, env={**kept, "PYTHONPATH": str(self.path)},
            capture_output=True, encoding="utf-8", check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    folder = tmp_path_factory.mktemp("elsewhere")
    pip = [sys.executable, "-m", "pip", "--quiet"]
    build = ["wheel", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, *build, "--wheel-dir", str(folder), str(ROOT)], check=True)
    [wheel] = folder.glob("qframe-*.whl")
    home = folder / "venv"
    venv.create(home, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    into = ["install", "--no-deps", "--no-index", "--target", str(packages)]
    subprocess.run([*pip, *into, str(wheel)], check=True)
    # What qframe depends on, without the project's own folder: a .pth is not read through another.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    schemes = {"shelf": "shelves:shelf", "forgetful": "shelves:forgetful"}
    path = installed(folder, "shelves", schemes, CODE)
    empty = folder / "empty"
    empty.mkdir()
    return Elsewhere(wheel, home / "bin" / "python", empty, path)


def test_the_wheel_has_the_very_files_that_qframe_tests_its_own_stores_by(
    elsewhere: Elsewhere,
) -> None:
    with zipfile.ZipFile(elsewhere.wheel) as wheel:
        shipped = {
            Path(name).name: wheel.read(name)
            for name in wheel.namelist()
            if name.startswith("qframe/conformance/")
        }
        assert not [name for name in wheel.namelist() if name.startswith("tests/")]
    ours = {path.name: path.read_bytes() for path in LAWS.glob("*.py")}
    assert {name: shipped.get(name) for name in ours.keys() - NOT_OURS_ALONE} == {
        name: text for name, text in ours.items() if name not in NOT_OURS_ALONE
    }
    assert not shipped.keys() & NOT_OURS_ALONE


@pytest.mark.gate
def test_a_share_of_the_suite_passes_on_the_model_under_another_scheme(
    elsewhere: Elsewhere,
) -> None:
    said = elsewhere.suite(
        "--qframe-store=shelf://x", "--strict-markers", "--pyargs",
        *(f"qframe.conformance.{name}" for name in SHARE),
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    assert " passed" in said.stdout
    collected = elsewhere.suite(
        "--qframe-store=shelf://x", "--collect-only", "--pyargs", "qframe.conformance"
    )
    files = {line.partition(".py::")[0] for line in collected.stdout.splitlines() if "::" in line}
    assert {Path(file).name for file in files} == {
        path.stem for path in LAWS.glob("test_*.py") if path.name not in NOT_OURS_ALONE
    }


def test_a_store_in_a_file_is_new_for_each_test(elsewhere: Elsewhere) -> None:
    said = elsewhere.suite(
        "--qframe-store=sqlite:///{folder}/store.db", "--pyargs", "qframe.conformance.test_bell"
    )
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.gate
def test_a_store_that_breaks_a_law_is_found(elsewhere: Elsewhere) -> None:
    said = elsewhere.suite(
        "--qframe-store=forgetful://x", "--pyargs", "qframe.conformance.test_publish"
    )
    assert said.returncode == 1, said.stdout + said.stderr
    assert "FAILED test_publish.py::" in said.stdout or "1 failed" in said.stdout


def test_without_a_store_the_suite_says_which_option_names_it(elsewhere: Elsewhere) -> None:
    said = elsewhere.suite("--pyargs", "qframe.conformance")
    assert said.returncode == 4
    assert "name the store: --qframe-store=myscheme://host/name" in said.stderr
