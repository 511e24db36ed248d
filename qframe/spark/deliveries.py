"""Messages on their way out of a topic: deliveries and dead letters become Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from qframe.codec import tags_of
from qframe.errors import BadBody
from qframe.message import Delivery
from qframe.spark.columns import outgoing
from qframe.stores.records import Record


class Table:
    """Makes batches of one schema.

    Args:
        topic: the topic's name.
        raw: whether bodies are bytes.
        dead: whether they are of dead letters.
    """

    def __init__(self, topic: str, *, raw: bool, dead: bool = False) -> None:
        self._topic = topic
        self._raw = raw
        self._schema: pa.Schema = to_arrow_schema(outgoing(raw, dead), timezone="UTC")

    def of_deliveries(self, messages: Sequence[Delivery]) -> pa.RecordBatch:
        """Messages of a slot's log."""
        return self._batch(messages, [each.slot for each in messages], {
            "offset": [each.seq for each in messages],
        })  # fmt: skip

    def of_records(self, dead: Sequence[Record]) -> pa.RecordBatch:
        """Dead letters."""
        return self._batch(dead, [each.slot for each in dead], {
            "offset": [each.seq for each in dead],
            "group": [each.group for each in dead],
            "attempts": [each.attempts for each in dead],
            "error": [each.error for each in dead],
            "traceback": [each.traceback for each in dead],
            "died_at": _times([each.died_at_ms for each in dead]),
        })  # fmt: skip

    def _batch(
        self, messages: Sequence[Delivery | Record], slots: Sequence[int], more: Mapping[str, Any]
    ) -> pa.RecordBatch:
        count = len(messages)
        headers = [each.headers for each in messages]
        has_headers = any(headers)
        columns = {
            "topic": pa.repeat(self._topic, count),
            "slot": slots,
            "id": [each.id for each in messages],
            "key": [each.key for each in messages],
            "body": self._bodies(messages),
            "headers": [_own(each) for each in headers] if has_headers else [None] * count,
            "published_at": _times([each.published_at_ms for each in messages]),
            "tags": [list(tags_of(each)) or None for each in headers]
            if has_headers
            else [None] * count,
            **more,
        }
        arrays = [_array(columns[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _bodies(self, messages: Sequence[Delivery | Record]) -> pa.Array:
        bodies = pa.array([each.body for each in messages], pa.binary())
        if self._raw:
            return bodies
        try:
            return bodies.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = next(each for each in messages if not _is_text(each.body))
            raise BadBody(
                "body of message", wrong.id, "it is not text in UTF-8",
                "read bodies as they are, with option bodyType=binary",
            ) from None  # fmt: skip


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _times(ms: Sequence[int | None]) -> pa.Array:
    return pa.array(ms, pa.timestamp("ms", "UTC"))


def _own(headers: Mapping[str, str] | None) -> list[tuple[str, str]] | None:
    """The user's headers, without those of qframe's own."""
    own = [each for each in (headers or {}).items() if not each[0].startswith("qf-")]
    return own or None


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
