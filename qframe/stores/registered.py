"""Stores of other distributions, which register the schemes of their URLs.

Such a distribution has an entry point of the group `qframe.stores` for each scheme:

    [project.entry-points."qframe.stores"]
    myscheme = "my_package.store:open_store"

    def open_store(url: str, *, namespace: str, clock: Clock) -> Store: ...

`namespace` keeps apart what several systems keep in one store, and `clock` is the one of a test, or
`SYSTEM_CLOCK`. The function raises errors of `qframe.errors`. It is asked only for a scheme that
qframe does not have itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from qframe.clock import Clock
from qframe.errors import BadUrl, QFrameError
from qframe.redaction import shown_url
from qframe.stores.base import Store

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "qframe.stores"
OPERATIONS: Final = tuple(name for name in dir(Store) if not name.startswith("_"))
_SHOWN: Final = 3  # of the operations that a store lacks


def registered(scheme: str) -> list[EntryPoint]:
    """The entry points for a scheme, without its driver."""
    from importlib.metadata import entry_points  # not above: it loads a parser of emails as well

    return [entry for entry in entry_points(group=GROUP) if entry.name.lower() == scheme]


def open_registered(url: str, entries: list[EntryPoint], *, namespace: str, clock: Clock) -> Store:
    """Opens a store by the entry point of its scheme.

    Raises:
        BadUrl: if several distributions register the scheme, or its own cannot open it.
        QFrameError: what its function raises.
    """
    entry, *others = entries
    if others:
        owners = ", ".join(map(distribution_of, entries))
        raise BadUrl(
            "store", shown_url(url), f"{owners} all register the scheme {entry.name}",
            "uninstall all but one of them",
        )  # fmt: skip
    try:
        opener: Any = entry.load()
        store = opener(url, namespace=namespace, clock=clock)
    except QFrameError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}".replace(url, shown_url(url))
        raise _broken(url, entry, f"it fails ({why})") from error
    lacking = [name for name in OPERATIONS if not callable(getattr(store, name, None))]
    if lacking:
        more = ", …" if len(lacking) > _SHOWN else ""
        what = f"what it opens, of type {type(store).__name__}, lacks"
        raise _broken(url, entry, f"{what} {', '.join(lacking[:_SHOWN])}{more}")
    return cast("Store", store)


def distribution_of(entry: EntryPoint) -> str:
    """The name and version of what has registered it."""
    return "an unknown distribution" if entry.dist is None else (
        f"{entry.dist.name} {entry.dist.version}"
    )  # fmt: skip


def _broken(url: str, entry: EntryPoint, why: str) -> BadUrl:
    owner = distribution_of(entry)
    name = "it" if entry.dist is None else entry.dist.name
    return BadUrl(
        "store", shown_url(url),
        f"{owner} registers the scheme {entry.name} by {entry.value}, and {why}",
        f"update {name} to a version for this qframe, or report it there",
    )  # fmt: skip
