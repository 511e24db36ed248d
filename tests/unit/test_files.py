"""Files of messages are read line by line, and a wrong line is named by file and number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qframe.cli.files import MessageFile
from qframe.errors import QFrameError


def read(path: Path, content: str | bytes, **options: Any) -> list[tuple[int, dict[str, Any]]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return [(line.number, line.envelope) for line in MessageFile(path, **options).lines()]


def test_each_json_line_is_a_body_and_blank_ones_are_skipped(tmp_path: Path) -> None:
    assert read(tmp_path / "a.jsonl", '{"a": 1}\n\n[2]\r\n"three"') == [
        (1, {"body": {"a": 1}}),
        (3, {"body": [2]}),
        (4, {"body": "three"}),
    ]


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path: Path) -> None:
    assert read(tmp_path / "a.jsonl", '"a\u2028b"\n"c"') == [
        (1, {"body": "a\u2028b"}),
        (2, {"body": "c"}),
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    assert read(tmp_path / "a.jsonl", b"\xef\xbb\xbf1\n2\n") == [(1, {"body": 1}), (2, {"body": 2})]
    assert read(tmp_path / "a.csv", b"\xef\xbb\xbfa\n1\n") == [(2, {"body": {"a": "1"}})]


def test_an_empty_file_has_no_messages(tmp_path: Path) -> None:
    assert read(tmp_path / "a.jsonl", "") == []
    assert read(tmp_path / "a.csv", "") == []


def test_csv_rows_are_objects_of_texts_and_may_span_lines(tmp_path: Path) -> None:
    assert read(tmp_path / "a.csv", 'a,b\n1,"two\nlines"\n3,\n') == [
        (3, {"body": {"a": "1", "b": "two\nlines"}}),
        (4, {"body": {"a": "3", "b": ""}}),
    ]


def test_fields_give_key_and_body(tmp_path: Path) -> None:
    line = '{"order": 7, "event": {"kind": "paid"}}'
    assert read(tmp_path / "a.jsonl", line, key_field="order") == [
        (1, {"body": {"order": 7, "event": {"kind": "paid"}}, "key": "7"})
    ]
    assert read(tmp_path / "a.jsonl", line, key_field="order", body_field="event") == [
        (1, {"body": {"kind": "paid"}, "key": "7"})
    ]


def test_envelopes_give_everything(tmp_path: Path) -> None:
    line = '{"body": null, "key": "k", "headers": {"a": "b"}, "delay": "10m", "id": null}'
    assert read(tmp_path / "a.jsonl", line, envelopes=True) == [
        (1, {"body": None, "key": "k", "headers": {"a": "b"}, "delay": "10m"})
    ]


@pytest.mark.parametrize(
    ("name", "content", "options", "shown"),
    [
        ("a.jsonl", "1\n{nope\n", {}, "a.jsonl line 2 '{nope': it is not JSON"),
        ("a.jsonl", b"1\n\xff\xfe\n", {}, "a.jsonl line 2"),
        ("a.jsonl", "1\n2\n", {"key_field": "k"}, "a.jsonl line 1 1: it has no field 'k'"),
        ("a.jsonl", '{"k": [1]}', {"key_field": "k"}, "a.jsonl line 1 [1]: field 'k' is not a key"),
        (
            "a.jsonl",
            '{"k": true}',
            {"key_field": "k"},
            "a.jsonl line 1 True: field 'k' is not a key",
        ),
        ("a.jsonl", '{"k": 1}', {"body_field": "b"}, "line 1 {'k': 1}: it has no field 'b'"),
        ("a.jsonl", '{"key": "k"}', {"envelopes": True}, "it is not an envelope"),
        ("a.jsonl", '{"body": 1, "kye": 2}', {"envelopes": True}, "line 1 'kye': an envelope has"),
        ("a.csv", "a,b\n1,2\n3\n", {}, "a.csv line 3 ['3', None]: the header has 2 fields"),
        ("a.csv", "a,b\n1,2,3\n", {}, "a.csv line 2"),
        ("a.csv", 'a\n"open', {}, "it is not CSV in UTF-8"),
        ("a.csv", b"a\n\xff\n", {}, "it is not CSV in UTF-8"),
        ("a.parquet", "no", {}, "it is not a Parquet file"),
        ("a.orc", "", {}, "use JSON lines (.jsonl), as .csv or as .parquet"),
    ],
)
def test_a_wrong_line_is_named(
    tmp_path: Path, name: str, content: str | bytes, options: dict[str, Any], shown: str
) -> None:
    with pytest.raises(QFrameError) as caught:
        read(tmp_path / name, content, **options)
    assert shown in str(caught.value)
    assert name in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path / "none.csv"):
        with pytest.raises(QFrameError, match=r"none\..*: it cannot be read \(no such file"):
            list(MessageFile(path).lines())
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(QFrameError, match="it cannot be read"):
        list(MessageFile(tmp_path / "folder.jsonl").lines())
