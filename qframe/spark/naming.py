"""Ids of rows: a function of what is written, never of the attempt to write it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from qframe.stores.types import Entry

_packed = msgspec.msgpack.Encoder().encode


def new_job() -> str:
    """A job's id where the user gives none."""
    return f"job-{secrets.token_hex(8)}"


def streaming_job(query: str, batch: str) -> str:
    """The id of a streaming query's batch: Spark keeps both in the checkpoint."""
    return f"{query}.{batch}"


def batch_token(job: str, partition: int, number: int, entries: Sequence[Entry]) -> str:
    """The beginning of the ids of a batch of rows: its job, partition, number there, and content.

    After a shuffle a task that runs again may have its rows in another order. Without the content
    it would take these for rows that are there, and lose them.
    """
    content = [(each.key, each.headers, each.body, each.at_ms, each.priority) for each in entries]
    found = blake2b(_packed(content), digest_size=6).hexdigest()
    return f"{job}.{partition}.{number}.{found}"


def hashed_ids(job: str, columns: Sequence[Iterable[Any]]) -> list[str]:
    """Ids that are the same for the same values in the same job.

    msgpack tells apart what JSON does not: NaN and null, bytes and texts.
    """
    return [
        f"{job}.{blake2b(_packed(row), digest_size=16).hexdigest()}"
        for row in zip(*columns, strict=True)
    ]
