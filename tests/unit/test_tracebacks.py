"""Errors are placed in the user's own code, and their tracebacks are cut to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import NullPool, create_engine, text

from qframe.message import Delivery, Message
from qframe.runtime.handler.binding import bind
from qframe.tracebacks import place_of, shortened


def raised(function: Callable[..., Any], *args: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        function(*args)
    return caught.value


def line_of(words: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if words in line)


def pay() -> None:
    raise KeyError("customer_id")  # the line of pay


def bill() -> None:
    pay()


def insert() -> None:
    with create_engine("sqlite://", poolclass=NullPool).connect() as connection:
        connection.execute(text("insert into nowhere values (1)"))  # the line of insert


def test_an_error_is_placed_at_the_users_last_line_with_its_function() -> None:
    place = place_of(raised(bill))
    assert place.endswith(f"test_tracebacks.py:{line_of('# the line of pay')} in pay")


def test_an_error_in_a_library_is_placed_where_the_user_called_it() -> None:
    place = place_of(raised(insert))
    mine, _, inner = place.partition(" (")
    assert mine.endswith(f"test_tracebacks.py:{line_of('# the line of insert')} in insert")
    assert inner.startswith("default.py:")


def test_a_place_names_the_packages_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "till").mkdir()
    (tmp_path / "till" / "__init__.py").write_text("def close():\n    raise OSError\n")
    (tmp_path / "till" / "handlers.py").write_text("def bill():\n    raise OSError\n")
    monkeypatch.syspath_prepend(tmp_path)
    from till import close  # type: ignore[import-not-found]
    from till.handlers import bill as bill_there  # type: ignore[import-not-found]

    assert place_of(raised(bill_there)) == "till/handlers.py:2 in bill"
    assert place_of(raised(close)) == "till/__init__.py:2 in close"


def test_a_service_that_is_installed_as_a_package_has_its_own_lines_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "billing_service.py").write_text(
        "import other_library\n\ndef bill():\n    other_library.go()\n"
    )
    (installed / "other_library.py").write_text("def go():\n    raise OSError\n")
    monkeypatch.syspath_prepend(installed)
    sys.modules.pop("billing_service", None)
    import billing_service  # type: ignore[import-not-found]

    # As a worker calls it: no frame of a project stands before it.
    error = raised(billing_service.bill)
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    assert place_of(error) == "billing_service.py:4 in bill (other_library.py:2)"


def test_an_error_that_was_never_raised_has_no_place() -> None:
    assert place_of(ValueError()) is None
    assert shortened(ValueError("no"), 100) == "ValueError: no"


def test_a_traceback_has_the_users_lines_and_the_innermost_and_no_other() -> None:
    told = shortened(raised(insert), 5000)
    assert "in insert" in told
    assert "connection.execute(text(" in told
    assert "in do_execute" in told
    assert "base.py" not in told.rpartition("direct cause")[2]
    assert "no such table: nowhere" in told


def test_a_cause_is_told_and_no_frame_of_qframe_is() -> None:
    def decode() -> None:
        try:
            json.loads("{")
        except ValueError as error:
            raise RuntimeError("bad order") from error

    def handler(message: Message) -> None:
        decode()

    message = Message(Delivery("m", None, None, b"1"), None, True)  # type: ignore[arg-type]
    told = shortened(raised(decode), 5000)
    assert told.index("JSONDecodeError") < told.index("RuntimeError: bad order")
    told = shortened(raised(bind(handler), message), 5000)
    assert "in handler" in told
    assert "qframe/runtime" not in told


def test_a_traceback_is_bounded_and_keeps_its_end() -> None:
    def deep(number: int) -> None:
        if number == 0:
            raise ValueError("x" * 3000)
        deep(number - 1)

    told = shortened(raised(deep, 50), 1000)
    assert len(told) == 1000
    assert told.startswith("…")
    assert told.endswith("x" * 900)


def test_a_group_of_errors_is_told_with_each_of_its_errors() -> None:
    def both() -> None:
        raise ExceptionGroup("two", [raised(pay), raised(insert)])  # type: ignore[list-item]

    told = shortened(raised(both), 5000)
    assert "customer_id" in told
    assert "no such table" in told
