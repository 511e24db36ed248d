"""`qframe topics resize`: doubles a topic's slots."""

from __future__ import annotations

import sys
from typing import Annotated

from click.exceptions import Exit

from qframe.cli.flags import AsJson, By, TopicName
from qframe.cli.output import counted, say, say_json
from qframe.cli.target import Target, coordinated
from qframe.cli.times import duration_of
from qframe.stores.doubling import MAX_PAUSE_S
from qframe.topic import Topic, span_of
from qframe.verbs.parameters import option


@coordinated
def resize(
    target: Target,
    topic: TopicName,
    slots: Annotated[
        int, option("--slots", metavar="N", help="How many: twice as many, four times, ….")
    ],
    max_pause: Annotated[
        str,
        option(metavar="TIME", help="How long the keys of a slot may wait at most."),
    ] = f"{MAX_PAUSE_S:g}s",
    as_json: AsJson = False,
    by: By = None,
) -> None:
    """Doubles a topic's slots while it is used.

    Slots are split one after the other, and each key waits once for a moment. Workers and producers
    need no restart. If it is stopped, call it again, or leave it to the topic's workers. A slot in
    which too much waits is split once less does, or by a longer --max-pause.
    """
    with target.acting(by) as (_, admin):
        try:
            grown = admin.resize(
                topic, slots, max_pause=duration_of(max_pause), on_progress=_show_progress
            )
        except KeyboardInterrupt:
            _end_progress()
            sys.stderr.write("stopped on the way: call it again, or a worker goes on\n")
            raise Exit(130) from None
        _end_progress()
    if as_json:
        say_json({"name": grown.name, "slots": grown.slots, "numbers": list(grown.all_slots)})
    else:
        say(f"topic {grown.name}: {counted(grown.slots, 'slot')}, {span_of(grown)}")


def _show_progress(topic: Topic) -> None:
    if sys.stderr.isatty():
        target = topic.growth.target or topic.slots
        sys.stderr.write(f"\r{len(topic.all_slots)} slots of {target}")
        sys.stderr.flush()


def _end_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
