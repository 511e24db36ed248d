"""The columns of messages, in and out, and what a topic asks of those that come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from qframe.errors import BadBody, BadInput, BadKey, BadOption
from qframe.spark.options import WriteOptions
from qframe.topic import Kind, Topic

_TEXT: Final = StringType()
_HEADERS: Final = MapType(StringType(), StringType())
_TAGS: Final = ArrayType(StringType())


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_body(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_map(kind: DataType) -> bool:
    return isinstance(kind, MapType) and _is_text(kind.keyType) and _is_text(kind.valueType)


def _is_list(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and _is_text(kind.elementType)


def _is_whole(kind: DataType) -> bool:
    return isinstance(kind, ByteType | ShortType | IntegerType | LongType)


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType)


# What each column may be, what that is called, and how to come there.
INCOMING: Final[dict[str, tuple[Callable[[DataType], bool], str, str]]] = {
    "body": (_is_body, "a string of JSON, or binary", "write it with to_json, or cast it"),
    "key": (_is_text, "a string", 'use col("key").cast("string")'),
    "id": (_is_text, "a string", 'use col("id").cast("string")'),
    "headers": (_is_map, "a map<string,string>", "cast its values to strings"),
    "tags": (_is_list, "an array<string>", "cast its elements to strings"),
    "at": (_is_time, "a timestamp", 'use col("at").cast("timestamp")'),
    "priority": (_is_whole, "an int", 'use col("priority").cast("int")'),
}


def outgoing(raw: bool, dead: bool) -> StructType:
    """The columns that are read.

    Args:
        raw: whether bodies are bytes.
        dead: whether they are dead letters, which tell more.
    """
    body = BinaryType() if raw else _TEXT
    fields = [
        StructField("topic", _TEXT, False),
        StructField("slot", IntegerType(), False),
        StructField("offset", LongType(), False),
        StructField("id", _TEXT, False),
        StructField("key", _TEXT),
        StructField("body", body, False),
        StructField("headers", _HEADERS),
        StructField("published_at", TimestampType(), False),
        StructField("tags", _TAGS),
    ]
    if dead:
        fields += [
            StructField("group", _TEXT, False),
            StructField("attempts", IntegerType(), False),
            StructField("error", _TEXT),
            StructField("traceback", _TEXT),
            StructField("died_at", TimestampType()),
        ]
    return StructType(fields)


def check_incoming(schema: StructType, topic: Topic, options: WriteOptions) -> None:
    """Refuses columns that cannot be messages of a topic, before a row is looked at.

    Raises:
        BadInput: naming the column.
    """
    given = {field.name: field for field in schema.fields}
    for name in given:
        if schema.names.count(name) > 1:
            raise BadInput(
                "column", name, "there are two columns of this name", "rename one of them"
            )
    if "body" not in given:
        raise BadBody(
            "column body", sorted(given), "it is missing from these columns",
            'add it, such as to_json(struct("*")).alias("body"), or use qframe.spark.publish',
        )  # fmt: skip
    for name in options.id_columns:
        if name not in given:
            raise BadOption(
                "option idColumns", name, "there is no such column", f"use some of {sorted(given)}"
            )
    if options.id_columns and "id" in given:
        raise BadOption(
            "option idColumns", ",".join(options.id_columns), "column id already names each row",
            "leave one of them out",
        )  # fmt: skip
    for name, field in given.items():
        if name in INCOMING:
            fits, expected, remedy = INCOMING[name]
            if not fits(field.dataType):
                raise BadInput(
                    f"column {name}", field.dataType.simpleString(), f"it must be {expected}",
                    remedy,
                )  # fmt: skip
        elif name not in options.id_columns:
            raise BadInput(
                "column", name, "a message has no such column",
                f"select only {', '.join(INCOMING)}, or put it into the body",
            )  # fmt: skip
    _check_kind(given, topic)


def _check_kind(given: dict[str, StructField], topic: Topic) -> None:
    if topic.kind is Kind.ORDERED and "key" not in given:
        raise BadKey(
            "column key", None, f"topic {topic.name!r} is ordered by key, and there is none",
            "add it, such as col(order_id).cast(string)",
        )  # fmt: skip
    if "priority" in given and topic.kind not in (Kind.PRIORITY, Kind.ORDERED):
        raise BadOption(
            "column priority", "priority",
            f"topic {topic.name!r} is of kind {topic.kind}, which has no use for it", "drop it",
        )  # fmt: skip
