"""A disk that is soon full."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

import pytest

REFUSED = "the tests of full disks mount a small one: run them as root, where that is allowed"


class SmallDisk:
    """A file system of so many bytes in a folder, part of it taken until `make_room`.

    Where nobody may mount one, or its size counts for nothing, the test is skipped: it would fill
    the disk of the machine.
    """

    def __init__(self, folder: Path, size: int, *, ballast: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{REFUSED}: {done.stderr.strip()}")
        there = os.statvfs(folder)
        if there.f_blocks * there.f_frsize != size:
            self.__exit__()
            pytest.skip(f"{REFUSED}: a tmpfs of {size} bytes has {there.f_blocks} blocks here")
        self._ballast = folder / "ballast"
        self._ballast.write_bytes(bytes(ballast))

    def make_room(self) -> None:
        """Frees what was taken at the start."""
        self._ballast.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily: a server that was killed may not have let go of its files yet.
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
