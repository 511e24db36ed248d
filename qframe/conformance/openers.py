"""Opens the store that `--qframe-store` names, for the suite of conformance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from qframe.clock import VirtualClock
from qframe.stores.base import Store
from qframe.stores.open import open_store

if TYPE_CHECKING:
    import pytest

DATABASES: Final = ()
STORES: Final = ("store",)
BENCHES: Final = STORES
ALIKE: Final = ()
FOLDER: Final = "{folder}"
Opener = Callable[[Path, VirtualClock, str], Store]
_RUN: Final = token_hex(4)  # what another run has left behind is not met


def opener_of(request: pytest.FixtureRequest, name: str) -> Opener:  # noqa: ARG001 - there is one
    """What opens the store, empty, by a folder of the test's own, a clock and a namespace."""
    url: str = request.config.getoption("--qframe-store")

    def opened(folder: Path, clock: VirtualClock, namespace: str) -> Store:
        own = f"{_RUN}-{folder.name}-{namespace}"
        return open_store(url.replace(FOLDER, str(folder)), namespace=own, clock=clock)

    return opened


def await_words_of(request: pytest.FixtureRequest, name: str) -> Callable[[], None]:  # noqa: ARG001
    """What returns when all that was said to the store's bells has come to them: at once."""
    return lambda: None


def share_of(store: str, part: int = 0, parts: int = 1, *, in_gate: bool = False) -> slice:  # noqa: ARG001
    """Which of the lives of the machines are led on the store: all."""
    return slice(None)
