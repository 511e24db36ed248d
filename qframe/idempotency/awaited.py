"""What of SQLAlchemy is loaded by those who use it: its ORM, and what is awaited of it.

The latter asks for greenlet, and the former takes a tenth of the time of `import qframe`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.util.concurrency import greenlet_spawn


def _asyncio() -> Any:
    """`sqlalchemy.ext.asyncio`, once anybody has an engine or an annotation of it."""
    return sys.modules.get("sqlalchemy.ext.asyncio")


def is_session(annotation: Any) -> bool:
    """Whether a parameter is to be a `Session`; nobody can ask for one who has not loaded it."""
    module = sys.modules.get("sqlalchemy.orm")
    return module is not None and _is_kind_of(annotation, module.Session)


def is_async_engine(engine: object) -> bool:
    """Whether it is an `AsyncEngine`."""
    module = _asyncio()
    return module is not None and isinstance(engine, module.AsyncEngine)


def is_async_session(annotation: Any) -> bool:
    """Whether a parameter is to be an `AsyncSession`."""
    module = _asyncio()
    return module is not None and _is_kind_of(annotation, module.AsyncSession)


def is_async_connection(annotation: Any) -> bool:
    """Whether a parameter is to be an `AsyncConnection`."""
    module = _asyncio()
    return module is not None and _is_kind_of(annotation, module.AsyncConnection)


def _is_kind_of(annotation: Any, kind: type) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, kind)


def async_connection(engine: Any, connection: Connection) -> Any:
    """An `AsyncConnection` that is this connection."""
    return _asyncio().AsyncConnection(engine, sync_connection=connection)


def plain_session(**options: Any) -> Any:
    """A `Session`."""
    return importlib.import_module("sqlalchemy.orm").Session(**options)


def async_session(**options: Any) -> Any:
    """An `AsyncSession`."""
    return _asyncio().AsyncSession(**options)


async def awaited(function: Callable[..., Any], *args: Any) -> Any:
    """Calls what asks an async engine in its plain form, and awaits what that waits for."""
    return await greenlet_spawn(function, *args)
