"""Makes a consumer's order, by its options and its topic's kind."""

from __future__ import annotations

from collections.abc import Callable

from qframe.message import Delivery
from qframe.runtime.context import ConsumerContext
from qframe.runtime.flow.in_flight import InFlight
from qframe.runtime.handler.retry_policy import Disposition
from qframe.runtime.order.base import Order
from qframe.runtime.order.batch_order import BatchOrder
from qframe.runtime.order.batches import Batches
from qframe.runtime.order.key_order import KeyOrder
from qframe.runtime.order.lanes import Lanes
from qframe.runtime.order.parked_keys import ParkedKeys
from qframe.runtime.order.tag_filter import TagFilter
from qframe.topic import Kind


def order_of(
    context: ConsumerContext, in_flight: InFlight,
    put: Callable[[list[Delivery] | Disposition], None], *, filters_first: bool,
) -> tuple[Order, Batches | None]:  # fmt: skip
    """The order of a consumer, and where its batches are gathered, if it has some.

    Args:
        context: the consumer's.
        in_flight: what it has in flight.
        put: hands settlements to the settler.
        filters_first: whether its policy sees to what is unwanted by its tags.
    """
    topic, options, gone = context.topic, context.options, in_flight.remove
    by_run, by_slot, tags = topic.has_subjects, options.serial, options.tags
    is_mine = in_flight.__contains__
    parked = ParkedKeys(is_mine) if options.keep_order else None

    def report_skipped(count: int) -> None:
        context.emit("delivery.skipped", count=count)

    if (batch := options.batch) is not None:
        batches = Batches(
            size=batch.size, within_s=batch.within_s, clock=context.clock, by_subject=by_run,
            by_slot=by_slot,
        )  # fmt: skip
        return BatchOrder(
            batches, in_turn=topic.kind is Kind.ORDERED or options.keep_order, parked=parked,
            matches=None if tags is None else tags.matches, is_mine=is_mine, gone=gone, put=put,
            on_skipped=report_skipped,
        ), batches  # fmt: skip
    lanes = Lanes(by_subject=by_run, by_slot=by_slot)
    if tags is not None and not filters_first:

        def skip(deliveries: list[Delivery]) -> None:
            report_skipped(len(deliveries))
            put(deliveries)

        lanes = TagFilter(
            matches=tags.matches, skip=skip, in_turn=by_run or options.keep_order,
            by_subject=by_run, by_slot=by_slot,
        )  # fmt: skip
    return KeyOrder(
        lanes, by_run=by_run, parked=parked, gone=gone, put=put,
    ), None  # fmt: skip
