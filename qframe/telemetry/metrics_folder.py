"""The numbers of several worker processes, added up by their supervisor.

Each worker writes into a private folder of the supervisor's; the supervisor only reads:

    <number>.<pid>.lock     held for as long as the process lives; only the kernel lets it go
    <number>.<pid>.numbers  all of its metrics, written anew every second and when it ends
    <number>.<pid>.<n>.cells  the outcomes of one consumer, in memory that the file shares

A message that was settled is counted in the shared memory at once, so a SIGKILL takes no count of
`qframe_handled_total` with it; of the other numbers it takes those of the last second at most.

Counters, histograms and summaries are added up, those of processes that are gone among them, so
nothing ever falls. A gauge means one process: it has the label `process`, which is the worker's
number, and ends with it. A label `process` of its own is `exported_process` there.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec

from qframe.service import Service
from qframe.telemetry.consumer_meter import OUTCOMES
from qframe.telemetry.families import Family
from qframe.telemetry.prometheus import metric_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

EVERY_S: Final = 1.0
HANDLED: Final = "qframe_handled"
_LOCK, _NUMBERS, _CELLS = ".lock", ".numbers", ".cells"
_CELLS_SIZE: Final = 4096
_LABELS_AT: Final = 64
_PROCESS: Final = "process"
_OWN_PROCESS: Final = f"exported_{_PROCESS}"
_SUMMED: Final = ("counter", "histogram", "summary")


class _Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class _WrittenMetric(msgspec.Struct):
    """A metric as a worker writes it."""

    name: str
    type: str
    help: str
    samples: list[_Sample]


_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(list[_WrittenMetric]).decode
_decode_labels = msgspec.msgpack.Decoder(tuple[str, str]).decode


class MetricsWriter(Service):
    """Writes the numbers of a worker process for its supervisor.

    Args:
        folder: the supervisor's.
        number: the worker's number.
        collectors: have its numbers.
        on_failure: called when it ends by an error.
    """

    def __init__(
        self,
        folder: Path,
        number: int,
        *,
        collectors: Iterable[Collector],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__("qframe.metrics", on_failure)
        self._folder = folder
        self._name = f"{number}.{os.getpid()}"
        self.collectors: list[Collector] = list(collectors)
        self._cells = count()
        self._lock = os.open(folder / f"{self._name}{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.lockf(self._lock, fcntl.LOCK_EX)  # no child of a fork inherits it

    def make_cells(self, topic: str, group: str) -> MutableSequence[int]:
        """Places for the outcomes of a consumer, which outlive the process."""
        path = self._folder / f"{self._name}.{next(self._cells)}{_CELLS}"
        labels = _encode((topic, group))
        with path.open("w+b") as file:
            file.write(bytes(_LABELS_AT) + len(labels).to_bytes(4) + labels)
            file.truncate(_CELLS_SIZE)
            file.flush()
            shared = mmap.mmap(file.fileno(), _CELLS_SIZE)
        cells = memoryview(shared).cast("q")[: len(OUTCOMES)]
        return cast("MutableSequence[int]", cells)

    def run(self) -> None:
        """Writes every second until it is stopped, and then once more."""
        while not self._stopping.wait(EVERY_S):
            self.write()
        self.write()

    def write(self) -> None:
        """Writes all numbers, in place of the last ones, unless the folder is gone."""
        written = [
            _WrittenMetric(
                metric.name, metric.type, metric.documentation,
                [_Sample(each.name, dict(each.labels), each.value) for each in metric.samples],
            )
            for collector in self.collectors
            for metric in collector.collect()
        ]  # fmt: skip
        new = self._folder / f"{self._name}.new"
        with suppress(FileNotFoundError):
            new.write_bytes(_encode(written))
            new.replace(self._folder / f"{self._name}{_NUMBERS}")


class FolderCollector:
    """Adds up what the workers of a supervisor have written, those that are gone as well.

    Args:
        folder: the supervisor's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        self._past = _Sum()

    def describe(self) -> Iterable[Metric]:
        """Returns nothing, so that registering it reads nothing."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The sums, as prometheus_client has them."""
        with self._guard:
            total = self._past.copy()
            for lock in sorted(self._folder.glob(f"*{_LOCK}")):
                name = lock.name.removesuffix(_LOCK)
                if _is_held(lock):
                    total.add(self._metrics(name), process=name.partition(".")[0])
                else:  # it writes no more
                    metrics = self._metrics(name)
                    self._past.add(metrics)
                    total.add(metrics)
                    for path in (*self._folder.glob(f"{name}.*"), lock):
                        path.unlink(missing_ok=True)
        return iter([*total.metrics()])

    def _metrics(self, name: str) -> list[_WrittenMetric]:
        """All metrics of a process; what it has handled from the memory that it shared."""
        try:
            found = _decode((self._folder / f"{name}{_NUMBERS}").read_bytes())
        except FileNotFoundError:  # it has not come so far
            found = []
        values = []
        for path in sorted(self._folder.glob(f"{name}.*{_CELLS}")):
            content = path.read_bytes()
            size = int.from_bytes(content[_LABELS_AT : _LABELS_AT + 4])
            if len(content) < _CELLS_SIZE:  # it is being made
                continue
            topic, group = _decode_labels(content[_LABELS_AT + 4 : _LABELS_AT + 4 + size])
            cells = memoryview(content).cast("q")
            values += [((topic, group, name), cells[at]) for at, name in enumerate(OUTCOMES)]
        text = "Messages whose end the store has confirmed or refused."
        labels = ("topic", "group", "outcome")
        handled = metric_of(Family(HANDLED, "counter", text, labels, values))
        samples = [_Sample(each.name, dict(each.labels), each.value) for each in handled.samples]
        others = [each for each in found if each.name != HANDLED]
        return [_WrittenMetric(HANDLED, "counter", text, samples), *others]


class _Sum:
    """Metrics that were added up."""

    def __init__(self) -> None:
        self._heads: dict[str, tuple[str, str]] = {}
        self._samples: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}

    def copy(self) -> _Sum:
        """The same, to be added to."""
        other = _Sum()
        other._heads = dict(self._heads)
        other._samples = {name: dict(samples) for name, samples in self._samples.items()}
        return other

    def add(self, metrics: Iterable[_WrittenMetric], process: str | None = None) -> None:
        """Adds the metrics of a process; without its number only what is added up."""
        for metric in metrics:
            is_summed = metric.type in _SUMMED
            if not is_summed and process is None:
                continue
            self._heads[metric.name] = metric.type, metric.help
            samples = self._samples.setdefault(metric.name, {})
            for sample in metric.samples:
                if sample.name.endswith("_created"):
                    continue
                labels = sample.labels
                if process is not None and not is_summed:
                    if _PROCESS in labels:  # a user's own, and Prometheus's name for such a one
                        labels = {
                            _OWN_PROCESS if name == _PROCESS else name: labels[name]
                            for name in labels
                        }
                    labels = {**labels, _PROCESS: process}
                key = sample.name, tuple(labels.items())
                samples[key] = samples.get(key, 0.0) + sample.value

    def metrics(self) -> Iterator[Metric]:
        """The sums, as prometheus_client has them."""
        from prometheus_client.core import Metric

        for name, (kind, text) in self._heads.items():
            metric = Metric(name, text, kind)
            for (sample, labels), value in self._samples[name].items():
                metric.add_sample(sample, dict(labels), value)
            yield metric


def _is_held(lock: Path) -> bool:
    """Whether the process that has made a lock lives."""
    with lock.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
