"""The only module-level mutable state: the apps of this process, and which is the default one.

Apps are added as they are made, so that `qframe worker MODULE` finds those of the modules that it
has imported. It holds them by weak references, so an unused app is collected.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import get_ident
from typing import Any, Final
from weakref import WeakValueDictionary


class Registry:
    """The apps of this process; any thread may use it."""

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._numbers = count()
        self._apps: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._default: Any = None
        self._visitor: Callable[[Any], object] | None = None
        self._importing: int | None = None

    def add(self, app: Any) -> None:
        """Notes an app that was made."""
        with self._guard:
            self._apps[next(self._numbers)] = app
            visitor = self._visitor
        if visitor is not None:
            visitor(app)

    def each(self, visitor: Callable[[Any], object] | None) -> None:
        """Calls it with every app, those that are made later too; None ends that for these."""
        with self._guard:
            self._visitor = visitor
            there = self.apps()
        if visitor is not None:
            for app in there:
                visitor(app)

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Notes that this thread imports the modules of apps: none of them runs meanwhile."""
        self._importing = get_ident()
        try:
            yield
        finally:
            self._importing = None

    @property
    def is_importing(self) -> bool:
        """Whether this thread is about to import the modules of apps."""
        return self._importing == get_ident()

    def apps(self) -> list[Any]:
        """All apps that are held by somebody, in the order in which they were made."""
        with self._guard:
            return [app for _, app in sorted(self._apps.items(), key=lambda item: item[0])]

    def default(self, make: Callable[[], Any]) -> Any:
        """The default app; made by `make`, once, where there is none."""
        with self._guard:
            if self._default is None:
                self._default = make()
            return self._default

    def forget(self, app: Any) -> None:
        """Forgets an app that was closed; the next one who needs a default app makes another."""
        with self._guard:
            if self._default is app:
                self._default = None
            for number, each in list(self._apps.items()):
                if each is app:
                    del self._apps[number]

    def reset(self) -> Any:
        """Forgets all apps, for tests; returns the default one, for the caller to close."""
        with self._guard:
            default, self._default = self._default, None
            self._apps.clear()
            return default


REGISTRY: Final = Registry()
