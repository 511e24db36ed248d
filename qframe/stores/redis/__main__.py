"""`python -m qframe.stores.redis NAME` writes a script, for producers in other languages."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from importlib.resources import files

from qframe.drivers.scripts import script

_PACKAGE = "qframe.stores.redis"
_NAMES = sorted(
    each.name.removesuffix(".lua")
    for each in (files(_PACKAGE) / "scripts").iterdir()
    if each.name.endswith(".lua")
)

parser = ArgumentParser(f"python -m {_PACKAGE}", description="Writes a script as servers run it.")
parser.add_argument("name", metavar="NAME", choices=_NAMES, help=f"one of {', '.join(_NAMES)}")
sys.stdout.write(script(_PACKAGE, parser.parse_args().name).text)
