"""`publish`: the short form, with expressions instead of columns of certain names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Never

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    VariantType,
)

from qframe.errors import BadBody, BadKey, BadOption
from qframe.options.rules import refuse_unknown
from qframe.options.settings import Settings
from qframe.spark.columns import check_incoming
from qframe.spark.naming import new_job
from qframe.spark.options import address_of, write_options
from qframe.spark.source import QFrameDataSource
from qframe.spark.writer import note_of
from qframe.topic import Kind, KindName, Topic

_NESTED = (StructType, MapType, ArrayType, VariantType)


def publish(
    df: DataFrame,
    topic: Topic | str,
    *,
    store: str | None = None,
    namespace: str | None = None,
    kind: KindName | None = None,
    slots: int | None = None,
    key: str | Column | None = None,
    body: str | Column | None = None,
    at: str | Column | None = None,
    priority: str | Column | None = None,
    headers: str | Column | None = None,
    tags: str | Column | None = None,
    id: str | Column | None = None,  # noqa: A002 - as in every other publish
    id_columns: Sequence[str] = (),
    job_id: str | None = None,
    batch: int | None = None,
    **unknown: Never,
) -> str:
    """Publishes each row of a DataFrame, once, and returns the job's id.

    An argument that names a part of a message is a column's name, or an expression. The same job
    run again, with the same rows in the same partitions and order or with ids of their own,
    publishes what is missing and nothing twice, within the topic's `dedupe_window`. After a
    shuffle, whose order depends on chance, give `id` or `id_columns`: Spark runs tasks again.

    Args:
        df: the rows.
        topic: a topic, which is declared, or the name of one that is.
        store: the store's URL, as it is reached from the executors; by default what the settings
            say, here and not there.
        namespace: the store's namespace; by default what the settings say.
        kind: declares a topic that is given by its name, if it is new; checked if it is not.
        slots: how many slots it then has; likewise.
        key: what must be handled serially and in order; cast to a string.
        body: the body: a struct, map, array or number is written as JSON, a string is JSON
            already, binary is published as it is. By default, a struct of all columns.
        at: due then: a timestamp.
        priority: higher goes first; in `priority` and `ordered` topics.
        headers: a map of texts.
        tags: an array of texts.
        id: the message's id.
        id_columns: columns whose values, with the job's id, make the message's id; a row has
            a value in one of them at least.
        job_id: the job's id, of which the messages' ids are made; made up by default.
        batch: how many rows go to the store in one call.
        unknown: refused by its name.

    Raises:
        BadInput: if anything about it is wrong; nothing was published. Spark's own error is
            raised where it is seen first.
    """
    for name in unknown:
        refuse_unknown("publish option", name, list(publish.__kwdefaults__ or ()))
    if isinstance(id_columns, str):
        raise BadOption("id_columns", id_columns, "it is a single string", f"use [{id_columns!r}]")
    settings = Settings.load(store=store, namespace=namespace)
    options = {
        "store": settings.store, "namespace": settings.namespace, "jobId": job_id or new_job(),
        "maxBody": str(settings.max_body),
    }  # fmt: skip
    if settings.timers_db:
        options["timersDb"] = settings.timers_db
    if isinstance(topic, Topic):
        for name, value in (("kind", kind), ("slots", slots)):
            if value is not None:
                why = "the Topic says it too"
                raise BadOption(name, value, why, "leave it out, or give the topic's name")
        kind, slots = topic.kind.value, topic.slots
    options["topic"] = topic.name if isinstance(topic, Topic) else topic
    options |= {} if kind is None else {"kind": kind}
    options |= {} if slots is None else {"slots": str(slots)}
    if batch is not None:
        options["batchSize"] = str(batch)
    if id_columns:
        if id is not None:
            raise BadOption("id_columns", list(id_columns), "id is given too", "give one")
        options["idColumns"] = ",".join(f"_id{number}" for number in range(len(id_columns)))
    for name in id_columns:
        if name not in df.columns:
            raise BadOption("id_columns", name, "there is no such column", f"use {df.columns}")
    parts = {
        "key": None if key is None else _column(df, key, "key").cast("string"),
        "at": None if at is None else _column(df, at, "at").cast("timestamp"),
        "priority": None if priority is None else _column(df, priority, "priority").cast("int"),
        "headers": None if headers is None else _column(df, headers, "headers"),
        "tags": None if tags is None else _column(df, tags, "tags"),
        "id": None if id is None else _column(df, id, "id").cast("string"),
        "body": _body(df, body),
    } | {f"_id{number}": _named(df, name) for number, name in enumerate(id_columns)}
    rows = df.select(*[part.alias(name) for name, part in parts.items() if part is not None])
    checked = write_options(options)
    address = address_of(options, may_be_new=True)
    check_incoming(rows.schema, address.topic, checked)
    needed = {}
    if id_columns:
        needed["id_columns"] = [name for name in rows.columns if name.startswith("_id")]
    if id is not None:
        needed["id"] = ["id"]
    if key is not None and address.topic.kind is Kind.ORDERED:
        needed["key"] = ["key"]
    if body is not None:
        needed["body"] = ["body"]
    _refuse_nulls(rows, needed)
    if isinstance(topic, Topic):
        # With its other options too, as any other publish of a topic does.
        msgspec.structs.replace(address, topic=topic, is_new=True).declare()
    df.sparkSession.dataSource.register(QFrameDataSource)
    try:
        rows.write.format("qframe").options(**options).mode("append").save()
    except Exception as error:
        error.add_note(note_of(options["jobId"]))
        raise
    return options["jobId"]


def _column(df: DataFrame, given: str | Column, what: str) -> Column:
    """A column by its name, or the expression itself."""
    if not isinstance(given, str):
        return given
    if given not in df.columns:
        raise BadOption(what, given, "there is no such column", f"use one of {df.columns}")
    return _named(df, given)


def _named(df: DataFrame, name: str) -> Column:
    """A column by the name that it has, dots and all."""
    return df[f"`{name.replace('`', '``')}`"]


def _body(df: DataFrame, given: str | Column | None) -> Column:
    if given is None:
        return f.to_json(f.struct(*[_named(df, name) for name in df.columns]))
    column = _column(df, given, "body")
    kind = df.select(column).schema[0].dataType
    if isinstance(kind, _NESTED):
        return f.to_json(column)
    if isinstance(kind, NumericType | BooleanType | NullType):
        return column.cast("string")
    if isinstance(kind, StringType | BinaryType):
        return column
    raise BadBody(
        "body", kind.simpleString(), "its text is not JSON",
        "put it into a struct, which is written as a JSON object",
    )  # fmt: skip


def _refuse_nulls(rows: DataFrame, needed: Mapping[str, Sequence[str]]) -> None:
    """Looks, in one job, for rows that lack something, where the schema does not rule it out.

    Args:
        rows: the rows, in the format's columns.
        needed: for each argument of `publish`, the columns of which a row must have one.
    """
    open_to_nulls = {
        what: reduce(and_, [f.col(name).isNull() for name in names]).alias(what)
        for what, names in needed.items()
        if all(rows.schema[name].nullable for name in names)
    }
    if not open_to_nulls:
        return
    lacking = rows.select(*open_to_nulls.values()).filter(reduce(or_, map(f.col, open_to_nulls)))
    for row in lacking.head(1):
        what = next(what for what in open_to_nulls if row[what])
        error = {"body": BadBody, "key": BadKey}.get(what, BadOption)
        raise error(what, None, "a row has none", "filter such rows out, or fill it in")
