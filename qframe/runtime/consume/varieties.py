"""Chooses a consumer's policy and executor, by its options, its handler and its checker."""

from __future__ import annotations

from typing import Any, cast

from qframe.idempotency.base import Checker, Scope
from qframe.options.consumer import AWAITED_AT_ONCE
from qframe.runtime.consume.consumer import SettleNow
from qframe.runtime.consume.engine import Engine
from qframe.runtime.consume.executor_parts import ExecutorParts
from qframe.runtime.context import ConsumerContext
from qframe.runtime.executors.base import Executor
from qframe.runtime.executors.batch_executor import BatchThreadExecutor
from qframe.runtime.executors.engine_calls import (
    CallsInLoop,
    CallsInThreads,
    CombinedCalls,
    EngineCalls,
)
from qframe.runtime.executors.event_loop import EventLoop
from qframe.runtime.executors.loop_executor import LoopExecutor
from qframe.runtime.executors.pull_buffer import PullBuffer
from qframe.runtime.executors.thread_executor import ThreadExecutor
from qframe.runtime.handler.spec import ConsumerSpec
from qframe.runtime.policies.base import EffectPolicy
from qframe.runtime.policies.direct import Direct
from qframe.runtime.policies.loop_checker import is_in_loop
from qframe.runtime.policies.marks import Marks
from qframe.runtime.policies.settle_first import SettleFirst
from qframe.runtime.policies.transactional import Transactional


def policy_of(
    context: ConsumerContext, scope: Scope, checker: Checker | None, settle_now: SettleNow
) -> EffectPolicy:
    """The policy around a handler: settling first, its checker, or none."""
    options = context.options
    if options.at_most_once:
        # Where keys are parked, what is unwanted has to be settled in its turn.
        tags = options.tags if context.topic.has_subjects or options.keep_order else None
        matches = None if tags is None else tags.matches
        return SettleFirst(context, settle_now=settle_now, matches=matches)
    if checker is None:
        return Direct()
    checked = Transactional if checker.is_transactional else Marks
    return checked(context, checker, scope)


def executor_of(
    context: ConsumerContext, spec: ConsumerSpec, checker: Checker | None, event_loop: EventLoop,
    parts: ExecutorParts,
) -> Executor:  # fmt: skip
    """The executor of a handler: threads, the event loop, or a loop of the user's own."""
    options = context.options
    if spec.is_pulled:
        return PullBuffer(context.clock, parts.work, spec.demand)
    if parts.batches is not None:
        return BatchThreadExecutor(
            context, batches=parts.batches, handler=cast("Any", spec.handler),
            event_loop=event_loop if spec.is_async else None, time_limit=parts.time_limit,
            work=parts.work,
        )  # fmt: skip
    if spec.is_async:
        return LoopExecutor(
            context, limit=options.threads if "threads" in options.given else AWAITED_AT_ONCE,
            time_limit=parts.time_limit, event_loop=event_loop, handler=cast("Any", spec.handler),
            work=parts.work, calls=_calls(context, checker, parts.work),
        )  # fmt: skip
    return ThreadExecutor(
        context, time_limit=parts.time_limit, work=parts.work, meter=parts.meter,
        relieve=None if checker is not None or options.at_most_once else parts.relieve,
    )  # fmt: skip


def _calls(context: ConsumerContext, checker: Checker | None, work: Engine) -> EngineCalls:
    """How tasks of the event loop ask the engine, so that none waits for a server."""
    if context.options.at_most_once:
        return CombinedCalls(work.begin, context.name_of("once"))
    if checker is None or is_in_loop(checker):
        return CallsInLoop(work.begin, is_awaited=checker is not None)
    return CallsInThreads(work.begin, context.name_of("checks"))
