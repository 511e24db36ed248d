"""A disk that is soon full."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Self

from absence import absent

MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


class SmallDisk:
    """A file system of so many bytes in a folder, part of it taken until `make_room`.

    A test of it is marked `mounts`. Where nobody may mount one, or its size counts for nothing, the
    test is not run: it would fill the disk of the machine.
    """

    def __init__(self, folder: Path, size: int, *, ballast: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        # Not by mount(8), which serves those alone whose user id is root's.
        options = f"size={size},mode=777".encode()
        if _libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, options):
            absent(f"a small disk cannot be mounted: {os.strerror(ctypes.get_errno())}")
        there = os.statvfs(folder)
        if there.f_blocks * there.f_frsize != size:
            self.__exit__()
            absent(f"a small disk is not small: of {size} bytes, it has {there.f_blocks} blocks")
        self._ballast = folder / "ballast"
        self._ballast.write_bytes(bytes(ballast))

    def make_room(self) -> None:
        """Frees what was taken at the start."""
        self._ballast.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily: a server that was killed may not have let go of its files yet.
        if _libc.umount2(bytes(self.folder), MNT_DETACH):
            raise OSError(ctypes.get_errno(), f"{self.folder} cannot be unmounted")
