"""The page of the architecture: it names what there is, and its recipe of an option is whole."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from qframe import QFrame
from qframe.app.pull import Pull, PullKeywords
from qframe.cli.main import cli
from qframe.drivers.dialects import DIALECTS
from qframe.options.consumer import ConsumerKeywords, ConsumerOptions
from qframe.options.rules import options_of
from qframe.web.gateway.callers import _GROUP_OPTIONS

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = (ROOT / "docs" / "contributors" / "architecture.md").read_text(encoding="utf-8")
RECIPE: Final = PAGE.partition("**A consumer option.**")[2].partition("**An event.**")[0]
PATHS: Final = r"`((?:qframe|tests|docs|deploy)/[\w./-]+)`"
SAMPLE: Final = "serial"
# An option need not be changed while it runs, nor be known by another name.
MAY_BE: Final = {"qframe/options/tuning.py", "qframe/words.py", "tests/test_recipes.py"}


@pytest.mark.parametrize("path", sorted(set(re.findall(PATHS, PAGE))))
def test_the_page_names_files_that_there_are(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(PATHS, RECIPE)) - MAY_BE))
def test_each_place_of_the_recipe_has_the_sample_option(path: str) -> None:
    place = ROOT / path
    files = place.rglob("*.py") if place.is_dir() else [place]
    assert any(re.search(rf"\b{SAMPLE}\b", file.read_text(encoding="utf-8")) for file in files)


def test_the_names_in_the_recipe_are_in_the_files_that_it_names() -> None:
    files = [ROOT / path for path in re.findall(PATHS, RECIPE) if path.endswith(".py")]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    names = set(re.findall(r"`(\w+)`", RECIPE))
    assert {"ConsumerKeywords", "PullKeywords", "_GROUP_OPTIONS", "_check_pairs"} <= names
    assert [name for name in names if name not in code] == []


def test_a_database_is_added_in_at_most_six_files() -> None:
    recipe = PAGE.partition("**A database.**")[2].partition("Nothing else names")[0]
    steps = re.findall(r"^\d\. ", recipe, re.MULTILINE)
    assert len(steps) == 6
    assert all(path in recipe for path in ("drivers/dialects.py", "drivers/schemes.py"))
    for dialect in DIALECTS:
        assert f'"{dialect.name}"' in (ROOT / "qframe/drivers/schemes.py").read_text()
        assert dialect.name.upper() in (ROOT / "qframe/drivers/dialects.py").read_text()


@pytest.mark.parametrize("row", re.findall(r"^\|.*`[A-Z_]+_S`.*\|$", PAGE, re.MULTILINE))
def test_a_row_that_names_constants_names_their_files(row: str) -> None:
    code = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in re.findall(PATHS, row))
    names = re.findall(r"`([A-Z_]+_S)`", row)
    assert [name for name in names if f"\n{name}: Final" not in code] == []


def test_every_option_is_in_the_places_of_the_recipe() -> None:
    options = options_of(ConsumerOptions)
    told = inspect.getdoc(QFrame.consumer) or ""
    assert [name for name in options if f"`{name}=" not in told] == []
    assert set(ConsumerKeywords.__annotations__) == set(options)
    told = inspect.getdoc(Pull) or ""
    assert [name for name in PullKeywords.__annotations__ if f"`{name}`" not in told] == []
    assert set(PullKeywords.__annotations__) <= set(options)
    assert set(_GROUP_OPTIONS) <= set(PullKeywords.__annotations__)
    gateway = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    assert [name for name in _GROUP_OPTIONS if f"`{name}`" not in gateway] == []


def test_no_option_of_a_consumer_is_a_flag_of_a_worker() -> None:
    for name in options_of(ConsumerOptions):
        ran = CliRunner().invoke(cli, ["worker", "shop", f"--{name.replace('_', '-')}=1"])
        assert f"write @consumer(…, {name}=…)" in str(ran.exception), name
