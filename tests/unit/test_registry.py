"""The process knows its apps, and has one default app."""

from __future__ import annotations

import gc
import threading

from qframe.app.registry import Registry


class App:
    pass


def test_an_app_that_nobody_holds_is_forgotten() -> None:
    registry = Registry()
    held = [App() for _ in range(3)]
    for app in (App(), *held):
        registry.add(app)
    gc.collect()
    assert registry.apps() == held, "in the order in which they were made"


def test_the_default_app_is_made_once_whatever_threads_ask() -> None:
    registry = Registry()
    made: list[App] = []
    seen: list[App] = []

    def make() -> App:
        made.append(App())
        registry.add(made[-1])  # as an app does itself
        return made[-1]

    threads = [
        threading.Thread(target=lambda: seen.append(registry.default(make))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert seen == made * 8
    assert registry.apps() == made


def test_a_closed_app_is_forgotten_and_another_default_made() -> None:
    registry = Registry()
    closed = registry.default(App)
    registry.add(closed)
    registry.forget(closed)
    registry.forget(closed)
    assert registry.apps() == []
    assert registry.default(App) is not closed


def test_reset_forgets_all_and_answers_the_default() -> None:
    registry = Registry()
    app = registry.default(App)
    registry.add(app)
    assert registry.reset() is app
    assert registry.apps() == []
    assert registry.default(App) is not app
    assert registry.reset() is not None
    assert registry.reset() is None
