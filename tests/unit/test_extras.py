"""Parts that need an extra, where it is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from qframe.extras import needed

# Whatever imports the package is told that it is not there.
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Without(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
try:
    import {part}
except ImportError as error:
    print(error.name, error)
"""


@pytest.mark.parametrize(
    ("part", "extra", "package"),
    [
        ("qframe.push", "push", "httpcore2"),
        ("qframe.spark", "spark", "pyspark"),
        ("qframe.telemetry.tracing", "tracing", "opentelemetry"),
        ("qframe.web", "web", "starlette"),
        ("qframe.web", "web", "jinja2"),
        ("qframe.web.gateway", "web", "starlette"),
    ],
)
def test_a_part_without_its_extra_says_how_to_install_it(
    part: str, extra: str, package: str
) -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(package=package, part=part)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    named, _, text = said.partition(" ")
    assert named.partition(".")[0] == package
    assert f"needs the package {package}, which is not installed" in text
    assert f"pip install 'qframe[{extra}]'" in text


def test_a_module_of_qframe_that_is_missing_is_no_missing_extra() -> None:
    with (
        pytest.raises(ModuleNotFoundError, match=r"^No module named 'qframe\.no_such'"),
        needed("web", "qframe.web"),
    ):
        import qframe.no_such  # noqa: F401
