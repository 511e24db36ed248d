"""Forks: connections, threads and locks are begun anew in the child.

A fork copies the memory of a process and one of its threads. Both processes then have the same
connections, and each would read replies to the other; a lock that another thread held stays locked
in the child. So each part that has some of these says here how it begins anew.

The child closes nothing that the parent has open: that could end it for the parent, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import RLock
from types import MethodType
from typing import Any, ClassVar, Final, NamedTuple, cast
from weakref import WeakKeyDictionary

LOCK_S: Final = 1.0


class _Hooks(NamedTuple):
    """Functions of a part, each given the part."""

    begin_anew: Callable[[Any], None]
    before: Callable[[Any], None] | None
    locks: Callable[[Any], Iterable[Any]] | None


class Forks:
    """The parts of this process that are told of forks, each for as long as it lives."""

    _parts: ClassVar[WeakKeyDictionary[Any, _Hooks]] = WeakKeyDictionary()
    _guard: ClassVar[Any] = RLock()
    _held: ClassVar[list[Any]] = []
    _kept: ClassVar[list[Any]] = []

    @classmethod
    def add(
        cls,
        begin_anew: Callable[[], None],
        *,
        before: Callable[[], None] | None = None,
        locks: Callable[[], Iterable[Any]] | None = None,
    ) -> None:
        """Makes a part known by methods of it.

        Args:
            begin_anew: forgets, unclosed, what is the parent's; called in the child.
            before: closes what must not be open while the process forks; called in the parent.
            locks: returns locks that are held from `before` on until both processes have begun, so
                that no thread is amid what they guard.
        """
        hooks = _Hooks(_function(begin_anew), before and _function(before),
                       locks and _function(locks))  # fmt: skip
        with cls._guard:
            cls._parts[cast("MethodType", begin_anew).__self__] = hooks

    @classmethod
    def keep(cls, *parents: Any) -> None:
        """Keeps what is the parent's from being collected, which could close it."""
        cls._kept += parents

    @classmethod
    def before(cls) -> None:
        """Runs in the parent."""
        cls._guard.acquire()
        parts = list(cls._parts.items())
        locks = {id(lock): lock for part, its in parts if its.locks for lock in its.locks(part)}
        # A part replaces one that was not free in time, since nobody would ever free it.
        cls._held = [lock for _, lock in sorted(locks.items()) if lock.acquire(timeout=LOCK_S)]
        for part, its in parts:
            if its.before:
                with suppress(Exception):
                    its.before(part)

    @classmethod
    def in_child(cls) -> None:
        """Runs in the child."""
        try:
            for part, its in list(cls._parts.items()):
                its.begin_anew(part)
        finally:
            cls.after()

    @classmethod
    def after(cls) -> None:
        """Runs in the parent, and last in the child."""
        held, cls._held = cls._held, []
        for lock in held:
            lock.release()
        cls._guard.release()


def _function(method: Callable[..., Any]) -> Callable[..., Any]:
    return cast("MethodType", method).__func__


if hasattr(os, "register_at_fork"):  # not on Windows, where no process forks
    os.register_at_fork(
        before=Forks.before, after_in_parent=Forks.after, after_in_child=Forks.in_child
    )
