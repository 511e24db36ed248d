"""The event loops from which a user runs an app."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 1.0


def in_event_loop() -> bool:
    """Whether the caller is a coroutine, or is called by one."""
    import asyncio  # not above: it is a fifth of `import qframe`, which is to be quick

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def stopped_by_cancel(run: Callable[[], None], stop: Callable[[], None]) -> None:
    """Runs in another thread; cancelled, stops it and waits until it has ended."""
    import asyncio

    task = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            stop()  # again and again: it may not have begun
            await asyncio.wait([task], timeout=LOOK_EVERY_S)
        raise
