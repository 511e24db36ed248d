"""A role of a store has a module of one name, in each store and in the conformance suite."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest
from interleaving.operations import OPERATIONS

import qframe.stores
from qframe.stores import acts, base
from qframe.stores.bucket import Buckets
from qframe.stores.controls import Controls
from qframe.stores.documents import DocumentBells, Documents
from qframe.stores.edits import Edits, Rewriting
from qframe.stores.model.store import ModelStore
from qframe.stores.pages import Pages, Reader
from qframe.stores.reads import Reads
from qframe.stores.redis.store import RedisStore
from qframe.stores.rosters import Rosters
from qframe.stores.sql.store import SqlStore

ROLES = {
    base.Declaring: "topics",
    base.Publishing: "publish",
    base.Pulling: "pull",
    base.Settling: "settle",
    base.Groups: "groups",
    Documents: "documents",
    Buckets: "buckets",
    Rewriting: "edits",
    acts.Repairing: "repair",
    acts.Copying: "copying",
    acts.Growing: "growing",
    base.Inspecting: "inspect",
    base.History: "history",
    base.Logs: "logs",
    Pages: "pages",
}
ABOVE = (base.Topics, Controls, Rosters, Reads, Edits)
MIRRORED = {*ROLES.values(), "bell", "role", "store"}
STORES = {"model": ModelStore, "redis": RedisStore, "sql": SqlStore}
FOLDER = Path(qframe.stores.__file__).parent
CONFORMANCE = Path(__file__).parent.parent / "conformance"


@pytest.mark.parametrize("name", STORES)
def test_a_store_has_a_file_for_each_role_and_names_its_others(name: str) -> None:
    files = {path.stem for path in (FOLDER / name).glob("*.py")} - {"__init__", "__main__"}
    package = importlib.import_module(f"qframe.stores.{name}")
    assert files >= MIRRORED
    assert set(re.findall(r"`(\w+)`", package.__doc__ or "")) >= files - MIRRORED


def test_the_roles_are_all_that_a_store_offers() -> None:
    protocols = {each for each in base.Store.__mro__ if each.__module__.startswith("qframe.")}
    assert protocols - {base.Store, *ABOVE, Reader, DocumentBells} == set(ROLES)


@pytest.mark.parametrize("written_once", ABOVE, ids=lambda role: role.__name__)
@pytest.mark.parametrize("name", STORES)
def test_what_stands_on_other_operations_is_written_once(name: str, written_once: type) -> None:
    for operation in [each for each in vars(written_once) if not each.startswith("_")]:
        found = inspect.getattr_static(STORES[name], operation)
        assert found is vars(written_once)[operation]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.__name__)
@pytest.mark.parametrize("name", STORES)
def test_a_role_is_written_once_in_the_module_of_its_name(name: str, role: type) -> None:
    operations = [each for each in vars(role) if not each.startswith("_")]
    module = f"qframe.stores.{name}.{ROLES[role]}"
    for operation in operations:
        found = inspect.getattr_static(STORES[name], operation)
        assert found.__module__ == module, operation
        assert found.__doc__ is None, f"{operation} is described in base.py"


def test_each_operation_is_run_inside_others() -> None:
    rows = {each.name.split()[0] for each in OPERATIONS}
    # Nobody else works on a topic while it is written down.
    roles = [role for role in ROLES if role not in (acts.Copying, acts.Growing)]
    operations = {name for role in roles for name in vars(role) if not name.startswith("_")}
    assert operations <= rows, "add a row to OPERATIONS in tests/interleaving/operations.py"


@pytest.mark.parametrize("module", [*ROLES.values(), "bell"])
def test_the_suite_has_a_file_for_each_role(module: str) -> None:
    assert (CONFORMANCE / f"test_{module}.py").is_file()
