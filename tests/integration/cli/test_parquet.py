"""`qframe publish --file x.parquet`: what Spark has archived is published again without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_program import Program
from whereabouts import whereabouts

from qframe import Topic

ORDERS = Topic("orders", slots=4)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    with program.app() as app:
        app.declare(ORDERS)
        app.store.subscribe(ORDERS, "g")
    return program


def write(folder: Path, name: str, **columns: pa.Array) -> None:
    """A file of these columns, in row groups of a few rows."""
    (folder / name).parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), folder / name, row_group_size=3)


def bodies(program: Program) -> list[Any]:
    with program.app() as app:
        records = app.store.peek(ORDERS, "g", states=("todo", "waiting"), limit=100)
    return sorted(record.body for record in records)


def test_each_row_is_a_message(program: Program, tmp_path: Path) -> None:
    moments = pa.array([datetime(2013, 1, 1, tzinfo=UTC)] * 7, pa.timestamp("us", "UTC"))
    write(tmp_path, "flights.parquet", tail=pa.array([f"N{n}" for n in range(7)]), at=moments)
    program.ok("publish", "orders", "--file", "flights.parquet", "--key-field", "tail")
    assert bodies(program)[6] == b'{"tail":"N6","at":"2013-01-01T00:00:00Z"}'


def test_an_archive_in_a_folder_comes_back_as_it_was(program: Program, tmp_path: Path) -> None:
    headers = pa.map_(pa.string(), pa.string())
    for part in range(2):
        ids = [f"m{part}-{n}" for n in range(5)]
        write(
            tmp_path, f"archive/part-{part}.parquet", id=pa.array(ids),
            key=pa.array(["a", None, "b", "c", "d"]),
            body=pa.array([f'{{"n": {n}.50}}' for n in range(5)]),
            headers=pa.array([[("from", "shop")], None, [], None, None], headers),
        )  # fmt: skip
    (tmp_path / "archive" / "_SUCCESS").touch()
    (tmp_path / "archive").rename(tmp_path / "archive.parquet")
    command = ("publish", "orders", "--file", "archive.parquet", "--envelopes")
    assert "10 stored" in program.ok(*command).out
    assert "10 duplicate" in program.ok(*command).out
    assert bodies(program)[0] == b'{"n": 0.50}'
    with program.app() as app:
        [record] = whereabouts(app.store, ORDERS, "m1-0")
    assert (record.key, record.headers) == ("a", {"from": "shop"})


def test_binary_bodies_come_back_as_bytes(program: Program, tmp_path: Path) -> None:
    write(tmp_path, "raw.parquet", body=pa.array([b"\xff\x00"], pa.binary()))
    program.ok("publish", "orders", "--file", "raw.parquet", "--envelopes")
    assert bodies(program) == [b"\xff\x00"]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"body": pa.array(["1", "nope"])}, "wrong.parquet line 2 'nope': its body is not JSON"),
        ({"body": pa.array(["1"]), "slot": pa.array([1])}, "an envelope has no such field"),
        ({"value": pa.array(["1"])}, "it is not an envelope"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_published(
    program: Program, tmp_path: Path, columns: dict[str, pa.Array], why: str
) -> None:
    write(tmp_path, "wrong.parquet", **columns)
    assert why in program.refused("publish", "orders", "--file", "wrong.parquet", "--envelopes")
    assert bodies(program) == []
