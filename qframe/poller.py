"""Pollers: a thread waits for several descriptors at once, one of which wakes it."""

from __future__ import annotations

import select

from qframe.errors import NotSupported


def new_poller(*descriptors: int) -> select.poll:
    """A poller that waits until one of the descriptors can be read.

    Raises:
        NotSupported: on a platform without them.
    """
    if not hasattr(select, "poll"):
        raise NotSupported(
            "waiting for messages without select.poll, which Windows lacks and eventlet's "
            "monkey_patch() takes away,",
            "run the worker on Linux, in a process without monkey_patch(): qframe worker",
        )
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return poller
