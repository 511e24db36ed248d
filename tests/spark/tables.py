"""Rows and their types without a JVM."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

TYPES: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "string": (StringType(), pa.string()),
    "binary": (BinaryType(), pa.binary()),
    "int": (IntegerType(), pa.int32()),
    "bigint": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", "UTC")),
    "map": (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string())),
    "array": (ArrayType(StringType()), pa.list_(pa.string())),
}


def schema(columns: str) -> StructType:
    """A schema from such as `body string, key int`."""
    fields = [each.split() for each in columns.split(",")]
    return StructType([StructField(name, TYPES[kind][0]) for name, kind in fields])


def batch(columns: str, *rows: tuple[Any, ...]) -> pa.RecordBatch:
    """Rows as Spark hands them to a task."""
    fields = [each.split() for each in columns.split(",")]
    values = [
        pa.array([row[place] for row in rows], TYPES[kind][1])
        for place, (_, kind) in enumerate(fields)
    ]
    return pa.record_batch(values, names=[name for name, _ in fields])


def given(**options: str) -> Any:
    """Options as Spark hands them to a source."""
    return CaseInsensitiveDict(options)
