"""The address and the extra of the commands that need the web."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from qframe.cli.web import EXTRAS, require, web_address
from qframe.errors import BadOption

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("port", "bound", "url"),
    [
        ("8370", "127.0.0.1", "http://127.0.0.1:8370"),
        ("localhost:1", "localhost", "http://localhost:1"),
        ("[::1]:8370", "::1", "http://[::1]:8370"),
    ],
)
def test_a_port_alone_is_one_of_this_machine_alone_and_needs_no_guard(
    port: str, bound: str, url: str
) -> None:
    address = web_address(port, is_guarded=False, danger="read", remedy="guard it")
    assert (address.bound, address.url()) == (bound, url)
    assert not address.is_everywhere


@pytest.mark.parametrize(
    ("port", "bound", "url"),
    [
        (":8370", "0.0.0.0", "https://127.0.0.1:8370"),
        ("[::]:8370", "::", "https://[::]:8370"),
        ("10.0.0.1:8370", "10.0.0.1", "https://10.0.0.1:8370"),
    ],
)
def test_what_other_machines_reach_is_served_only_if_it_is_guarded(
    port: str, bound: str, url: str
) -> None:
    address = web_address(port, is_guarded=True, danger="read", remedy="guard it")
    assert (address.bound, address.url("https")) == (bound, url)
    assert address.is_everywhere == (bound in ("0.0.0.0", "::"))
    with pytest.raises(BadOption, match="could read; guard it"):
        web_address(port, is_guarded=False, danger="read", remedy="guard it")


def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for extra in EXTRAS:
        require("console", extra)
    monkeypatch.setitem(EXTRAS, "web", ("starlette", "no_such_package"))
    with pytest.raises(BadOption, match=r"no_such_package.*pip install 'qframe\[web]'"):
        require("console", "web")


def test_the_packages_of_each_extra_are_those_that_it_installs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    brought = extras["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        assert {re.split("[>=<]", each)[0] for each in brought[extra]} == set(packages)
