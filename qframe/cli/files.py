"""Messages read from files: JSON lines, CSV and Parquet; a wrong line is named by its number."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from qframe.cli.parquet import PARQUET, parquet_rows
from qframe.errors import BadBody, BadInput, BadOption, NotSupported

ENVELOPE: Final = (
    "body", "key", "headers", "tags", "id", "delay", "at", "priority", "within", "sequence",
    "slot_basis",
)  # fmt: skip
_JSON_LINES: Final = (".jsonl", ".ndjson", ".json")


class Line(NamedTuple):
    """One message of a file: the number of its line, from 1, and what is to be published."""

    number: int
    envelope: dict[str, Any]


class MessageFile(NamedTuple):
    """A file of messages.

    Attributes:
        path: the file; its suffix tells what it is.
        key_field: the field of each line that is the message's key; None for messages without.
        body_field: the field that is the body; None if the whole line is.
        envelopes: whether each line is an object of body, key, headers and so on.
    """

    path: Path
    key_field: str | None = None
    body_field: str | None = None
    envelopes: bool = False

    def lines(self) -> Iterator[Line]:
        """The file's messages, in order.

        Raises:
            BadOption: if the file cannot be read.
            NotSupported: if it is none of JSON lines, CSV and Parquet.
            BadInput: if a line cannot be a message; the error names the line.
        """
        suffix = self.path.suffix.lower()
        if suffix == ".csv":
            rows = self._csv()
        elif suffix in _JSON_LINES:
            rows = self._json_lines()
        elif suffix == PARQUET:
            rows = self._parquet()
        else:
            raise NotSupported(
                f"publishing from {str(self.path)!r}",
                f"use JSON lines ({_JSON_LINES[0]}), as .csv or as {PARQUET}",
            )
        try:
            for number, row in rows:
                yield Line(number, self._envelope(number, row))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise BadOption(
                "file", str(self.path), f"it cannot be read ({why})", "name a readable file"
            ) from error

    def at(self, number: int) -> str:
        """A line's position, for messages."""
        return f"{self.path} line {number}"

    def _json_lines(self) -> Iterator[tuple[int, Any]]:
        decode = msgspec.json.Decoder().decode
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not (text := line.strip().removeprefix(b"\xef\xbb\xbf")):
                    continue
                try:
                    row = decode(text)
                except msgspec.DecodeError as error:
                    raise BadBody(
                        self.at(number), text.decode(errors="replace"), f"it is not JSON ({error})",
                        "write one JSON value on each line",
                    ) from None  # fmt: skip
                yield number, row

    def _csv(self) -> Iterator[tuple[int, Any]]:
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            try:
                for row in reader:
                    if None in row or None in row.values():
                        raise BadBody(
                            self.at(reader.line_num), list(row.values()),
                            f"the header has {len(reader.fieldnames or ())} fields, this line not",
                            "give each line as many fields as the first",
                        )  # fmt: skip
                    yield reader.line_num, row
            except (csv.Error, UnicodeDecodeError) as error:
                raise BadOption(
                    "file", self.at(reader.line_num + 1), f"it is not CSV in UTF-8 ({error})",
                    "save it as CSV in UTF-8, with a header",
                ) from error  # fmt: skip

    def _parquet(self) -> Iterator[tuple[int, Any]]:
        """Rows; those that are envelopes are as Spark's format `qframe` has them."""
        for number, row in parquet_rows(self.path):
            if self.envelopes and isinstance(row.get("body"), str):
                row["body"] = self._json(number, row["body"])
            yield number, row

    def _json(self, number: int, text: str) -> msgspec.Raw:
        """JSON as it is, once it is known to be that."""
        try:
            msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise BadBody(
                self.at(number), text, f"its body is not JSON ({error})",
                "write bodies as JSON, or as binary to publish them as they are",
            ) from None  # fmt: skip
        return msgspec.Raw(text.encode())

    def _envelope(self, number: int, row: Any) -> dict[str, Any]:
        if self.envelopes:
            return checked_envelope(self.at(number), row)
        envelope = {"body": row if self.body_field is None else self._field(number, row, "body")}
        if self.key_field is not None:
            key = self._field(number, row, "key")
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise BadInput(
                    self.at(number), key, f"field {self.key_field!r} is not a key",
                    "name a field of strings or whole numbers",
                )  # fmt: skip
            envelope["key"] = str(key)
        return envelope

    def _field(self, number: int, row: Any, what: str) -> Any:
        name = self.key_field if what == "key" else self.body_field
        if isinstance(row, dict) and name in row:
            return row[name]
        raise BadInput(
            self.at(number), row, f"it has no field {name!r}",
            f"name a field that every line has with --{what}-field",
        )  # fmt: skip


def checked_envelope(at: str, row: Any) -> dict[str, Any]:
    """A row that is an envelope: body, key and so on; `at` is where it stands.

    Raises:
        BadInput: if it is none.
    """
    if not isinstance(row, dict) or "body" not in row:
        raise BadInput(
            at, row, "it is not an envelope", 'write {"body": …, "key": …} on each line',
        )  # fmt: skip
    for name in row:
        if name not in ENVELOPE:
            raise BadInput(at, name, "an envelope has no such field", f"use {', '.join(ENVELOPE)}")
    return {name: value for name, value in row.items() if value is not None or name == "body"}
