"""A Django project without pages, whose databases are those of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.db import connections
from django.db.utils import ConnectionHandler
from sqlalchemy import URL

ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql"}
urlpatterns: list[Any] = []


def set_up() -> None:
    """Sets Django up, once in a process."""
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x" * 50)
    django.setup()


@contextmanager
def database(alias: str, url: URL) -> Iterator[Any]:
    """Django's connection to a database, which is known under an alias meanwhile."""
    set_up()
    facts = {
        "ENGINE": f"django.db.backends.{ENGINES[url.get_backend_name()]}", "NAME": url.database,
        "HOST": url.host or "", "PORT": url.port or "", "USER": url.username or "",
    }  # fmt: skip
    connections.settings[alias] = ConnectionHandler({"default": facts}).settings["default"]
    try:
        yield connections[alias]
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]
