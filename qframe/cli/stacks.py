"""`qframe workers list --stacks`: where handlers are in their code, asked of the workers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from qframe.admin.admin import Admin
from qframe.admin.owners import WorkerInfo
from qframe.admin.stacks import WorkerStacks
from qframe.cli.output import escaped
from qframe.cli.watch import View
from qframe.topic import is_internal

_LOOKS: Final = 25
_EVERY_S: Final = 0.2


def asked_stacks(admin: Admin, workers: Sequence[WorkerInfo], now_ms: int) -> View:
    """Asks workers for their stacks; returns them once all have replied, or 5 s have passed.

    Args:
        admin: the verbs.
        workers: the workers.
        now_ms: the store's now.
    """
    wanted = {
        (*consumer.split("/", 1), worker.id)
        for worker in workers
        for consumer in worker.consumers
        if not is_internal(consumer)
    }
    groups = sorted({(topic, group) for topic, group, _ in wanted})
    for topic, group in groups:
        admin.ask_stacks(topic, group)
    found: list[WorkerStacks] = []
    for _ in range(_LOOKS):
        threading.Event().wait(_EVERY_S)
        found = [
            each
            for topic, group in groups
            for each in admin.stacks(topic, group)
            if each.at_ms >= now_ms
        ]
        if wanted <= {(each.topic, each.group, each.worker) for each in found}:
            break
    silent = wanted - {(each.topic, each.group, each.worker) for each in found}
    return View([msgspec.to_builtins(each) for each in found], _drawn(found, len(silent)))


def _drawn(found: Sequence[WorkerStacks], silent: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for each in found:
        for stack in each.stacks:
            more = f" and {stack.others} more" if stack.others else ""
            parts.append(Text(escaped(
                f"{each.topic}/{each.group} {stack.id}{more}, in worker {each.worker}"
            )))  # fmt: skip
            parts += [Text(escaped(f"  {line}")) for line in stack.lines]
    if not parts:
        parts.append(Text("no handler runs now"))
    if silent:
        parts.append(Text(f"{silent} consumers did not reply within 5 s: their workers may hang"))
    return parts
