"""Publishing a file: looked through first, then published in batches, with a progress bar."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from qframe.app.qframe import QFrame
from qframe.cli.files import Line, MessageFile
from qframe.cli.output import counted, say, say_error, say_json
from qframe.cli.steps import stoppable
from qframe.cli.times import duration_of, moment_of
from qframe.clock import SYSTEM_CLOCK
from qframe.errors import BadInput, QFrameError, TopicFull
from qframe.outcomes import Outcome
from qframe.producing.outgoing import Outgoing
from qframe.producing.producer import Producer
from qframe.topic import Topic


def publish_file(app: QFrame, topic: Topic | str, source: MessageFile, *, as_json: bool) -> None:
    """Publishes each line of a file; none, if one of them is wrong.

    Raises:
        QFrameError: if a line is wrong, or the store refuses; what was published is told before.
    """
    total = 0
    name = topic.name if isinstance(topic, Topic) else topic
    producer = app.producer
    for line in source.lines():
        _check(producer, topic, source, line)
        total += 1
    outcomes: Counter[str] = Counter()
    begun_s = SYSTEM_CLOCK.monotonic_s()
    try:
        with _progress() as progress, stoppable() as stop_if_asked:
            task = progress.add_task(f"publishing to {name}", total=total)
            for batch in _batches(source, app.settings.publish_batch):
                stop_if_asked()
                outcomes.update(_published(app, topic, batch))
                progress.update(task, completed=sum(outcomes.values()))
    except (QFrameError, KeyboardInterrupt) as error:
        done = sum(outcomes.values())
        if isinstance(error, TopicFull):
            done += sum(1 for each in error.outcomes if each.outcome is not Outcome.FULL)
        say_error(f"only {done} of {counted(total, 'message')} in {source.path} were published")
        raise
    took_s = SYSTEM_CLOCK.monotonic_s() - begun_s
    if as_json:
        say_json({"topic": name, "published": total, "outcomes": dict(outcomes)})
        return
    detail = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    shown = f" ({detail})" if detail else ""
    say(f"{counted(total, 'message')} of {source.path} published to {name}{shown}, {took_s:.1f} s")


def _check(producer: Producer, topic: Topic | str, source: MessageFile, line: Line) -> None:
    try:
        producer.check(topic, [outgoing_of(line)])
    except BadInput as error:
        what = f"{source.at(line.number)}: {error.what}"
        raise BadInput(what, error.value, error.why, error.remedy) from None


def outgoing_of(line: Line) -> Outgoing:
    """The message of a line, its times read as they are typed."""
    envelope: dict[str, Any] = dict(line.envelope)
    for name in ("delay", "within"):
        if isinstance(envelope.get(name), str):
            envelope[name] = duration_of(envelope[name])
    if isinstance(envelope.get("at"), str):
        envelope["at"] = moment_of(envelope["at"], "at")
    return Outgoing(**envelope)


def _batches(source: MessageFile, size: int) -> Iterator[list[Outgoing]]:
    outgoing = (outgoing_of(line) for line in source.lines())
    while batch := list(islice(outgoing, size)):
        yield batch


def _published(app: QFrame, topic: Topic | str, batch: list[Outgoing]) -> list[str]:
    return [str(each.outcome) for each in app.publish_many(topic, batch, batch=len(batch))]


def _progress() -> Progress:
    """A bar on stderr, where that is a terminal; it goes when it is done."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
