"""Rows on their way into a topic: Arrow batches become entries, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from qframe.codec import (
    RAW,
    TYPE_HEADER,
    basis_of,
    body_as_basis,
    checked_id,
    encode_headers,
    is_raw,
    subject_of,
)
from qframe.errors import BadBody, BadInput, BadKey, BadOption
from qframe.producing.entry import MAX_PRIORITY
from qframe.spark.naming import hashed_ids
from qframe.spark.options import WriteOptions
from qframe.stores.types import Entry
from qframe.topic import BEYOND_MS, Kind, Topic, checked_key

_RAW: Final = {TYPE_HEADER: RAW}


class EntryBuilder:
    """Turns batches of rows into entries that have no id yet, or the one that the row names.

    Args:
        topic: the topic.
        options: how rows become messages.
        job: the job's id, for ids from columns.
    """

    def __init__(self, topic: Topic, options: WriteOptions, job: str) -> None:
        self._topic = topic
        self._options = options
        self._job = job
        self._is_json = msgspec.json.Decoder(msgspec.Raw).decode

    def entries(self, batch: pa.RecordBatch) -> list[Entry]:
        """The rows' messages, in order.

        Raises:
            BadInput: if one of them cannot be a message; it names the column and the value.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        _refuse_broken(columns)
        bodies = self._bodies(columns["body"])
        keys = self._keys(columns.get("key"), len(bodies))
        headers = self._headers(columns, len(bodies))
        ids = self._ids(columns)
        entries = [
            Entry(
                self._topic.slot_of_hash(number), subject_of(self._topic, key, hashed, ""),
                "", "", key, header, body, number,
            )
            for body, key, header in zip(bodies, keys, headers, strict=True)
            for hashed in [self._hashed(body, key, header)]
            for number in [crc32(hashed if key is None else key.encode())]
        ]  # fmt: skip
        if ids is not None:
            for entry, message_id in zip(entries, ids, strict=True):
                hashed = self._hashed(entry.body, entry.key, entry.headers)
                basis = basis_of(self._topic, None, entry.key, hashed, message_id)
                entry.hash = crc32(basis)
                entry.slot = self._topic.slot_of_hash(entry.hash)
                entry.name(message_id, message_id)
        if (at := columns.get("at")) is not None:
            for entry, at_ms in zip(entries, _milliseconds(at), strict=True):
                entry.at_ms = at_ms
        if (priorities := columns.get("priority")) is not None:
            for entry, priority in zip(entries, priorities.to_pylist(), strict=True):
                if priority is not None and abs(priority) > MAX_PRIORITY:
                    raise BadInput(
                        "column priority", priority, "it must be within ±2147483647", "use 0"
                    )
                entry.priority = priority or 0
        return entries

    def _hashed(self, body: bytes, key: str | None, headers: dict[str, str] | None) -> bytes:
        return body_as_basis(self._topic, key, body if is_raw(headers) else msgspec.Raw(body), body)

    def _bodies(self, column: pa.Array) -> list[bytes]:
        is_json = not _is_binary(column.type)
        bodies: list[bytes] = column.cast(pa.large_binary()).to_pylist()
        most = self._options.max_body
        check = self._is_json
        for body in bodies:
            if body is None:
                raise BadBody("column body", None, "a row has none", "filter such rows out")
            if len(body) > most:
                raise BadBody(
                    "column body", f"of {len(body)} bytes", f"maxBody is {most}",
                    "publish a reference instead, or raise option maxBody",
                )  # fmt: skip
            if is_json:
                try:
                    check(body)
                except (msgspec.DecodeError, RecursionError) as error:
                    raise BadBody(
                        "column body", body.decode(errors="replace"), f"it is not JSON ({error})",
                        "write it with to_json, or cast it to binary to publish it as it is",
                    ) from None  # fmt: skip
        return bodies

    def _keys(self, column: pa.Array | None, count: int) -> Sequence[str | None]:
        if column is None:
            return [None] * count
        keys: list[str | None] = column.to_pylist()
        needed = self._topic.kind is Kind.ORDERED
        for key in keys:
            if key is not None:
                checked_key(key)
            elif needed:
                raise BadKey(
                    "column key", None,
                    f"topic {self._topic.name!r} is ordered by key, and a row has none",
                    "filter such rows out, or give them a key",
                )  # fmt: skip
        return keys

    def _headers(self, columns: dict[str, pa.Array], count: int) -> Sequence[dict[str, str] | None]:
        raw = _is_binary(columns["body"].type)
        given, tags = columns.get("headers"), columns.get("tags")
        if given is None and tags is None:
            return [_RAW if raw else None] * count
        maps = [None] * count if given is None else given.to_pylist()
        lists = [None] * count if tags is None else tags.to_pylist()
        return [
            encode_headers(dict(pairs) if pairs else None, some, raw, self._options.max_body)
            for pairs, some in zip(maps, lists, strict=True)
        ]

    def _ids(self, columns: dict[str, pa.Array]) -> list[str] | None:
        if self._options.id_columns:
            names = self._options.id_columns
            values = [columns[name].to_pylist() for name in names]
            if (None,) * len(names) in zip(*values, strict=True):
                raise BadOption(
                    f"idColumns {','.join(names)}", None, "a row has none of them, so that nothing "
                    "tells it from the next one", "filter such rows out, or fill it in",
                )  # fmt: skip
            return hashed_ids(self._job, values)
        if "id" not in columns:
            return None
        return [checked_id(each) for each in columns["id"].to_pylist()]


def _refuse_broken(columns: Mapping[str, pa.Array]) -> None:
    """Refuses texts that are not UTF-8: Spark makes them of any bytes that are cast to a string."""
    for name, column in columns.items():
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise BadInput(
                "column", name, f"it has a text that is not UTF-8 ({error})",
                "decode it where it was made, or leave a body as binary",
            ) from None  # fmt: skip


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _milliseconds(column: pa.Array) -> list[Any]:
    """Times as the store has them; parts of a millisecond are cut off.

    Raises:
        BadInput: if one lies further ahead than a store counts.
    """
    whole = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    last = pc.max(whole).as_py()
    if last is not None and last >= BEYOND_MS:
        raise BadInput(
            "column at", f"{last} ms since 1970", "it lies behind the year 5138",
            "use an earlier time, or null for now",
        )  # fmt: skip
    return [None if ms is None else max(0, ms) for ms in whole.to_pylist()]
