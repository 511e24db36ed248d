"""The tables in users' databases, made by Alembic as docs/databases.md has it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from checking import DATABASES, database_url
from cli_program import WITHIN_S, warm
from sqlalchemy import Engine, create_engine, inspect, text

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "databases.md").read_text(encoding="utf-8")
ENV = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
MODELS = """
from sqlalchemy import Column, Integer, MetaData, String, Table
metadata = MetaData()
orders = Table("orders", metadata, Column("id", Integer, primary_key=True), Column("s", String(9)))
"""
OURS = {"qframe_effects", "qframe_outbox", "qframe_lines"}

Alembic = Callable[..., str]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return database_url(request, request.param, tmp_path)


@pytest.fixture
def alembic(url: str, tmp_path: Path) -> Alembic:
    """Runs alembic in a project that has the page's env.py."""

    def alembic(*words: str) -> str:
        answer = warm().run(
            words, module="alembic", cwd=tmp_path, env={**os.environ, "DATABASE_URL": url},
            stdin="", timeout_s=WITHIN_S,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout + answer.stderr

    alembic("init", "migrations")
    (tmp_path / "migrations" / "env.py").write_text(ENV, encoding="utf-8")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "models.py").write_text(MODELS, encoding="utf-8")
    return alembic


def names(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names())


def test_alembic_makes_the_tables_finds_no_difference_and_takes_them_back(
    alembic: Alembic, url: str, tmp_path: Path
) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:  # as the message store's, in the same database
        connection.execute(text("CREATE TABLE qframe_topics (id INTEGER PRIMARY KEY)"))
    alembic("revision", "--autogenerate", "-m", "tables of qframe")
    alembic("upgrade", "head")
    assert names(engine) == {*OURS, "orders", "qframe_topics", "alembic_version"}

    assert "No new upgrade operations detected" in alembic("check")
    alembic("revision", "--autogenerate", "-m", "nothing")
    [second] = (tmp_path / "migrations" / "versions").glob("*_nothing.py")
    assert "op." not in second.read_text(encoding="utf-8")

    alembic("upgrade", "head")
    alembic("downgrade", "base")
    assert names(engine) == {"qframe_topics", "alembic_version"}
    engine.dispose()
