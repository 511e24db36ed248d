"""Stores of other distributions: each is installed by pip, and found by the scheme of its URL."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest
from cli_program import Program
from distributions import installed

from qframe import BadOption, BadUrl, QFrame, StoreUnavailable, Topic
from qframe.clock import VirtualClock
from qframe.stores.model.store import ModelStore
from qframe.stores.open import open_store

SECRET = "hunter2"
CODE = """
from qframe import StoreUnavailable
from qframe.stores.model.store import ModelStore

OPENED = {}

def open_store(url, *, namespace, clock):
    if url not in OPENED:
        OPENED[url] = ModelStore(namespace=namespace, clock=clock)
        OPENED[url].url = url.partition("@")[2]
    return OPENED[url]

def away(url, *, namespace, clock):
    raise StoreUnavailable("shelf", "it is being tidied")

def old(url):
    raise AssertionError("it is never called")

def failing(url, *, namespace, clock):
    raise ZeroDivisionError(f"nothing can be divided by {url}")

def half(url, *, namespace, clock):
    class Half:
        publish = pull = print
    return Half()
"""
SCHEMES = {
    "shelf": "shelves:open_store",
    "away": "shelves:away",
    "absent": "nowhere:open_store",
    "nameless": "shelves:nameless",
    "old": "shelves:old",
    "failing": "shelves:failing",
    "half": "shelves:half",
    "model": "shelves:failing",
    "sqlite": "shelves:failing",
}


@pytest.fixture(scope="module")
def shelves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("shelves"), "shelves", SCHEMES, CODE)


@pytest.fixture
def on_path(shelves: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(shelves))
    monkeypatch.delitem(sys.modules, "shelves", raising=False)


@pytest.mark.usefixtures("on_path")
def test_an_app_works_on_a_store_of_another_distribution() -> None:
    app = QFrame(store="shelf+oak://u:hunter2@host/orders?depth=3", namespace="shop")
    handled: list[str] = []

    @app.consumer(Topic("orders", slots=2), group="billing")
    def bill(order: str) -> None:
        handled.append(order)
        app.stop()

    with app:
        app.publish("orders", "a book")
        app.run()
        assert handled == ["a book"]
        assert [topic.name for topic in app.admin.topics()] == ["orders"]


@pytest.mark.usefixtures("on_path")
def test_its_function_is_given_the_url_the_namespace_and_the_clock() -> None:
    clock = VirtualClock()
    with closing(open_store("Shelf://x@host", namespace="shop", clock=clock)) as store:
        assert isinstance(store, ModelStore)
        assert (store.url, store.namespace) == ("host", "shop")
        assert store.now_ms() == clock.now_ms()
        clock.advance(5)
        assert store.now_ms() == clock.now_ms()


@pytest.mark.usefixtures("on_path")
@pytest.mark.parametrize(
    ("scheme", "why"),
    [
        ("absent", r"by nowhere:open_store, and it fails \(ModuleNotFoundError: .*nowhere"),
        ("nameless", "by shelves:nameless, and it fails .AttributeError"),
        ("old", r"by shelves:old, and it fails \(TypeError: old.. got an unexpected keyword"),
        ("failing", r"ZeroDivisionError: nothing can be divided by failing://\*\*\*@host/db"),
        ("half", "of type Half, lacks acknowledge, bell, birth, …; update shelves to"),
    ],
)
def test_a_broken_one_is_refused_by_its_scheme_and_distribution(scheme: str, why: str) -> None:
    with pytest.raises(BadUrl, match=why) as caught:
        open_store(f"{scheme}://u:hunter2@host/db?x=hunter2")
    assert f"shelves 1.0 registers the scheme {scheme} by " in str(caught.value)
    assert "; update shelves to a version for this qframe" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.usefixtures("on_path")
def test_an_error_of_qframes_own_is_left_as_it_is() -> None:
    with pytest.raises(StoreUnavailable, match="it is being tidied"):
        open_store("away://host")


@pytest.mark.usefixtures("on_path")
def test_a_scheme_of_qframes_own_is_not_taken_over(tmp_path: Path) -> None:
    for url in ("model://", f"sqlite:///{tmp_path}/q.db"):
        with closing(open_store(url)) as store:
            assert type(store).__module__.startswith("qframe.stores.")


def test_doctor_notes_a_package_that_registers_a_scheme_of_qframes_own(
    shelves: Path, tmp_path: Path
) -> None:
    ran = Program(tmp_path).run("doctor", "--store", "model://", PYTHONPATH=str(shelves))
    assert ran.code == 0, ran.err
    assert "shelves 1.0 registers the scheme model, which is qframe's own" in ran.out


@pytest.mark.usefixtures("on_path")
def test_a_scheme_that_two_distributions_register_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = installed(tmp_path, "cellar", {"Shelf": "cellar:open_store"}, CODE)
    monkeypatch.syspath_prepend(str(second))
    with pytest.raises(BadUrl, match=r"(shelves|cellar) 1.0, .* 1.0 all register the scheme"):
        open_store("shelf://host")


@pytest.mark.usefixtures("on_path")
def test_a_registered_store_is_no_database_for_timers() -> None:
    with pytest.raises(BadUrl, match=r"timers_db .* names no database"):
        open_store("redis://127.0.0.1:1", timers_db="shelf://host")
    with pytest.raises(BadOption, match="is not Redis, and keeps its timers itself"):
        open_store("shelf://host", timers_db="sqlite:///q.db")


@pytest.mark.parametrize("command", ["topics list", "doctor"])
def test_commands_open_such_a_store(shelves: Path, tmp_path: Path, command: str) -> None:
    url = "shelf://u:hunter2@host/orders"
    ran = Program(tmp_path).run(*command.split(), "--store", url, PYTHONPATH=str(shelves))
    assert ran.code == 0, ran.err
    assert SECRET not in ran.out + ran.err
    refused = Program(tmp_path).run("store", "migrate", "--store", url, PYTHONPATH=str(shelves))
    assert refused.code != 0
    assert "a store without tables" in refused.err


def test_without_it_the_scheme_is_refused_and_the_remedy_says_what_to_install() -> None:
    with pytest.raises(BadUrl, match=r"names no store; use .* install the package that registers"):
        open_store("shelf://host")
