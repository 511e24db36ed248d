"""SQLAlchemy for those who have loaded it: consumers without a transaction need no part of it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection


def is_connection(annotation: Any) -> bool:
    """Whether a parameter is to be a `Connection`."""
    return _is_kind_of(annotation, "sqlalchemy", "Connection")


def is_session(annotation: Any) -> bool:
    """Whether a parameter is to be a `Session`."""
    return _is_kind_of(annotation, "sqlalchemy.orm", "Session")


def is_async_session(annotation: Any) -> bool:
    """Whether a parameter is to be an `AsyncSession`."""
    return _is_kind_of(annotation, "sqlalchemy.ext.asyncio", "AsyncSession")


def is_async_connection(annotation: Any) -> bool:
    """Whether a parameter is to be an `AsyncConnection`."""
    return _is_kind_of(annotation, "sqlalchemy.ext.asyncio", "AsyncConnection")


def is_async_engine(engine: object) -> bool:
    """Whether it is an `AsyncEngine`."""
    return _is_kind_of(type(engine), "sqlalchemy.ext.asyncio", "AsyncEngine")


def _is_kind_of(annotation: Any, module: str, name: str) -> bool:
    """Whether it is a class of a module, which who asks for it has loaded."""
    loaded = sys.modules.get(module)
    return (
        loaded is not None
        and inspect.isclass(annotation)
        and issubclass(annotation, getattr(loaded, name))
    )


def async_connection(engine: Any, connection: Connection) -> Any:
    """An `AsyncConnection` that is this connection."""
    module = importlib.import_module("sqlalchemy.ext.asyncio")
    return module.AsyncConnection(engine, sync_connection=connection)


def plain_session(**options: Any) -> Any:
    """A `Session`."""
    return importlib.import_module("sqlalchemy.orm").Session(**options)


def async_session(**options: Any) -> Any:
    """An `AsyncSession`."""
    return importlib.import_module("sqlalchemy.ext.asyncio").AsyncSession(**options)


async def awaited(function: Callable[..., Any], *args: Any) -> Any:
    """Calls what asks an async engine in its plain form, and awaits what that waits for."""
    spawn = importlib.import_module("sqlalchemy.util.concurrency").greenlet_spawn
    return await spawn(function, *args)
