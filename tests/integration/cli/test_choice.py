"""`qframe worker --topic --group --log-level` and `qframe drop-group`, in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from qframe import QFrame, Topic
from qframe.cli.main import cli
from qframe.errors import BadOption, UnknownGroup

MODULE = """
import os
from qframe import Message, QFrame, Topic

app = QFrame(os.environ["QFRAME_STORE"])
orders = Topic("orders", kind="ordered", slots=2)
mail = Topic("mail", slots=2)


def handle(message: Message) -> None:
    pass


app.consumer(orders, "billing")(handle)
app.consumer(orders, "stock")(handle)
app.consumer(mail, "smtp")(handle)
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QFrame]:
    """A module with three consumers, and the store that it names, with a message for each."""
    url = f"sqlite:///{tmp_path / 'q.db'}"
    monkeypatch.setenv("QFRAME_STORE", url)
    monkeypatch.setenv("QFRAME_LOG_LEVEL", "error")
    monkeypatch.setattr("qframe.cli.worker.name_worker", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "chosen_shop.py").write_text(MODULE)
    sys.modules.pop("chosen_shop", None)
    with QFrame(url) as app:
        orders = Topic("orders", kind="ordered", slots=2)
        app.declare(orders)
        for group in ("billing", "stock"):
            app.store.subscribe(orders, group)
        app.publish(orders, 1, key="a")
        app.publish(Topic("mail", slots=2), 1)
        yield app


def run(*words: str, **options: Any) -> Result:
    return CliRunner().invoke(cli, words, prog_name="qframe", catch_exceptions=False, **options)


def handled(app: QFrame) -> dict[str, int]:
    topics = {each.name: each for each in app.admin.topics()}
    return {one.group: one.settled for each in topics.values() for one in each.groups}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"billing": 1, "stock": 1, "smtp": 1}),
        (["--topic", "orders"], {"billing": 1, "stock": 1, "": 0}),
        (["--group", "stock"], {"billing": 0, "stock": 1, "": 0}),
        (["--group", "stock", "--group", "smtp"], {"billing": 0, "stock": 1, "smtp": 1}),
        (["--topic", "orders", "--group", "billing"], {"billing": 1, "stock": 0, "": 0}),
    ],
)
def test_a_worker_serves_the_topics_and_groups_that_are_named(
    app: QFrame, words: list[str], expected: dict[str, int]
) -> None:
    ran = run("worker", "chosen_shop:app", "--burst", *words)
    assert ran.exit_code == 0, ran.output
    assert handled(app) == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "ordrs"], "--topic 'ordrs': no consumer .* did you mean 'orders'"),
        (["--group", "x"], "--group 'x': no consumer .* there are: billing, smtp, stock"),
        (
            ["--topic", "mail", "--group", "stock"],
            "no consumer of topic mail has this group; there are: orders/billing, orders/stock",
        ),
        (["--log-level", "loud"], "log_level 'loud': it must be one of debug, info"),
    ],
)
def test_what_is_not_there_is_refused(app: QFrame, words: list[str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        run("worker", "chosen_shop:app", "--burst", *words)
    assert handled(app) == {"billing": 0, "stock": 0, "": 0}


def test_a_log_level_on_the_command_line_counts(app: QFrame) -> None:
    quiet = run("worker", "chosen_shop:app", "--burst", "--topic", "mail")
    sys.modules.pop("chosen_shop")
    loud = run("worker", "chosen_shop:app", "--burst", "--topic", "mail", "--log-level", "info")
    assert "worker.started" not in quiet.output
    assert "worker.started" in loud.output


def test_a_group_is_dropped_when_its_user_says_yes(app: QFrame) -> None:
    refused = run("drop-group", "orders", "billing", input="n\n")
    assert refused.exit_code == 1
    assert "Drop orders/billing with 1 unsettled message and 0 dead letters" in refused.output
    assert app.admin.groups("orders") == ["billing", "stock"]
    dropped = run("drop-group", "orders", "billing", input="y\n")
    assert dropped.output.endswith("group billing of topic orders dropped\n")
    assert app.admin.groups("orders") == ["stock"]
    with pytest.raises(UnknownGroup):
        run("drop-group", "orders", "billing", "--yes")
