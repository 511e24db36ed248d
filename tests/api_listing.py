"""The public API as text: `python tests/api_listing.py > docs/api.txt`."""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import qframe
from qframe import spark, testing, web


def listing() -> str:
    """Every public name with its signature; classes with their public methods and properties.

    `Admin` is the sum of its parts, which nobody uses by themselves: it is listed as one class.
    """
    lines: list[str] = []
    for name in qframe.__all__:
        lines += list(_described(name, getattr(qframe, name)))
    for package in (spark, testing, web):
        for name in package.__all__:
            full = f"{package.__name__.removeprefix('qframe.')}.{name}"
            lines += list(_described(full, getattr(package, name)))
    return "\n".join(lines) + "\n"


def _described(name: str, thing: Any) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield f"{name}{_signature(thing)}"
        return
    if issubclass(thing, enum.Enum):
        yield f"{name}: {', '.join(member.value for member in thing)}"
        return
    parts = [base for base in thing.__mro__[1:] if base.__module__.startswith("qframe.admin.")]
    hidden = (object, *parts)
    bases = ", ".join(
        base.__name__
        for base in thing.__bases__
        if base not in hidden and not base.__name__.startswith("_")
    )
    yield f"{name}({bases}){_signature(thing)}" if bases else f"{name}{_signature(thing)}"
    for field in getattr(thing, "__struct_fields__", ()):
        if not field.startswith("_"):
            yield f"    {name}.{field}"
    found = {name: value for one in [*reversed(parts), thing] for name, value in vars(one).items()}
    for attribute, value in sorted(found.items()):
        if attribute.startswith("_"):
            continue
        if isinstance(value, property):
            yield f"    {name}.{attribute}"
        elif inspect.isfunction(value):
            yield f"    {name}.{attribute}{_signature(value)}"


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(…)"
    if any(parameter.startswith("_") for parameter in signature.parameters):
        return ""  # users are given it, and do not make it
    return str(signature)


if __name__ == "__main__":
    sys.stdout.write(listing())
