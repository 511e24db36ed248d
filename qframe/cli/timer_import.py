"""Setting timers from JSON lines: a wrong line harms itself alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from qframe.app.qframe import QFrame
from qframe.cli.bulk import outgoing_of
from qframe.cli.files import Line, checked_envelope
from qframe.errors import BadInput, BadOption, QFrameError
from qframe.producing.outgoing import Outgoing


class Imported(NamedTuple):
    """The result of an import.

    Attributes:
        outcomes: how many lines were stored, merged, replaced or duplicates.
        wrong: how many lines were left out.
    """

    outcomes: Counter[str]
    wrong: int

    @property
    def done(self) -> int:
        """How many lines are timers now."""
        return sum(self.outcomes.values())


def import_timers(
    app: QFrame, topic: str, path: Path, *, on_error: Callable[[str], object]
) -> Imported:
    """Sets a timer for each line of a file.

    Args:
        app: the app.
        topic: the topic.
        path: the file.
        on_error: told of each wrong line.

    Raises:
        BadOption: if the file cannot be read.
        QFrameError: if the store refuses.
    """
    outcomes: Counter[str] = Counter()
    wrong = 0
    batch: list[Outgoing] = []

    def publish() -> None:
        if batch:
            published = app.publish_many(topic, batch, batch=len(batch))
            outcomes.update(str(each.outcome) for each in published)
            batch.clear()

    for number, text in _lines(path):
        try:
            one = _timer_of(f"{path} line {number}", number, text)
            app.producer.check(topic, [one])
        except BadInput as error:
            wrong += 1
            at = f"{path} line {number}"
            on_error(str(error) if at in str(error) else f"{at}: {error}")
            continue
        batch.append(one)
        if len(batch) >= app.settings.publish_batch:
            publish()
    publish()
    return Imported(outcomes, wrong)


def _timer_of(at: str, number: int, text: bytes) -> Outgoing:
    try:
        row: Any = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(
            at, text.decode(errors="replace"), f"it is not JSON ({error})", "write one JSON object"
        ) from None
    envelope = checked_envelope(at, row)
    if "at" not in envelope and "delay" not in envelope:
        raise BadInput(at, row, "a timer needs a time", 'give "at" or "delay"')
    envelope.setdefault("id", f"import/{blake2b(text, digest_size=16).hexdigest()}")
    try:
        return outgoing_of(Line(number, envelope))
    except QFrameError:
        raise
    except (TypeError, ValueError) as error:
        raise BadInput(at, row, str(error), "see docs/reference/publish.md") from error


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if text := line.strip().removeprefix(b"\xef\xbb\xbf"):
                    yield number, text
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadOption(
            "file", str(path), f"it cannot be read ({why})", "name a readable file"
        ) from error
