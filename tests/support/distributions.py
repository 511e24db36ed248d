"""Little distributions that register stores: pip installs each into a folder of its own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path


def installed(folder: Path, name: str, schemes: Mapping[str, str], code: str) -> Path:
    """The folder with a distribution whose one module, of its name, has this code.

    Args:
        folder: for the wheel and for what is installed.
        name: the distribution's.
        schemes: the function that opens the stores of each scheme: "name:function".
        code: the module's.
    """
    facts = f"{name}-1.0.dist-info"
    entries = "".join(f"{scheme} = {function}\n" for scheme, function in schemes.items())
    texts = {
        f"{name}.py": code,
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{facts}/entry_points.txt": f"[qframe.stores]\n{entries}",
    }
    record = "".join(f"{place},,\n" for place in (*texts, f"{facts}/RECORD"))
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for place, text in {**texts, f"{facts}/RECORD": record}.items():
            file.writestr(place, text)
    target = folder / name
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True)
    return target
