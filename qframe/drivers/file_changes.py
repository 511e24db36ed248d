"""Tells whoever waits for a file that it was written to: by inotify, where there is Linux."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Final

_MODIFIED: Final = 0x2  # IN_MODIFY of <sys/inotify.h>
_HEAD: Final = struct.Struct(
    "iIII"
)  # struct inotify_event: watch, mask, cookie, length of the name
_READ_AT_ONCE: Final = 65536


class FileChanges:
    """Notices writes to a file, and to files beside it whose names begin with the same.

    It watches their folder, so the files may come and go. To wait, poll `descriptor` for input.

    Args:
        path: the file's.

    Raises:
        OSError: if the system cannot tell, or tells no more who ask.
    """

    def __init__(self, path: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            raise OSError("there is no inotify")
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise _error()
        folder, self._name = Path(path).parent, os.fsencode(Path(path).name)
        if libc.inotify_add_watch(self.descriptor, os.fsencode(folder), _MODIFIED) < 0:
            error = _error()
            self.close()
            raise error

    def seen(self) -> bool:
        """Whether it was written to since this was asked, or may have been; it does not wait."""
        try:
            events = os.read(self.descriptor, _READ_AT_ONCE)
        except BlockingIOError:
            return False
        at = 0
        while at < len(events):
            watch, _, _, length = _HEAD.unpack_from(events, at)
            at += _HEAD.size + length
            if watch < 0 or events[at - length : at].startswith(self._name):
                return True  # a negative number: the queue was full, and events were lost
        return False

    def close(self) -> None:
        """Stops watching."""
        os.close(self.descriptor)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
