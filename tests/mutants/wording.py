"""Planted faults in words that point the right way."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

WORDS: Final = UNIT + "test_words.py"
OFFSETS: Final = "tests/spark/test_stream_offsets.py -k 'looks_for or advises'"

WORDING: Final = [
    Mutant(
        "the nearest spelling wins over the word of another system",
        "words.py",
        '    meant = _translated(name, door) if door is not None else ""\n',
        '    meant = ""\n',
        WORDS,
    ),
    Mutant(
        "a likeness is taken for a slip of the keyboard",
        "words.py",
        "    most = 2 if len(plain) >= _LONG else 1\n",
        "    most = len(plain) // 2\n",
        WORDS,
    ),
    Mutant(
        "a topic takes an option that there is not, and does not say so",
        "topic.py",
        "        for option in unknown:\n",
        "        for option in ():\n",
        WORDS,
    ),
    Mutant(
        "the last batch of a Spark query stays due for its group",
        "spark/stream_reader.py",
        "self._move_group(begin | older)",
        "pass",
        OFFSETS,
    ),
    Mutant(
        "a worker is missed for the group of a Spark query",
        "spark/stream_reader.py",
        "        store.tune(topic, group, {READER: SPARK})\n",
        "",
        OFFSETS,
    ),
    Mutant(
        "a worker takes the group of a Spark query from it",
        "runtime/process/live_settings.py",
        "            if settings.tuning.reader is not None:\n",
        "            if False:\n",
        "tests/spark/test_stream_offsets.py -k refuses_the_group",
    ),
    Mutant(
        "a batch read of Spark from beyond the end has no rows and no error",
        "spark/reader.py",
        "            if options.fail_on_loss:\n",
        "            if False:\n",
        "tests/spark/test_batch_ends.py -k beyond",
    ),
    Mutant(
        "a message with its options, written as a dict, is published as a body",
        "producing/bulk.py",
        " and any(map(is_envelope, items)):\n",
        " and is_envelope(items[0]):\n",
        "tests/integration/publishing/test_bad_input.py -k reads_like",
    ),
    Mutant(
        "an outbox that nobody relays is not told of",
        "app/parts.py",
        "            for outbox in unrelayed(handlers, relayed, self._topic_names):\n",
        "            for outbox in unrelayed((), relayed, self._topic_names):\n",
        "tests/integration/cli/test_worker.py -k nobody_relays",
        "test-all",
    ),
    Mutant(
        "each call of httpx is a line of a worker's log",
        "telemetry/root_log.py",
        '    for name in _ROUTINE if settings.log_level == "info" else ():\n',
        "    for name in ():\n",
        "tests/integration/workers/test_root_log.py -k httpx",
        "test-all",
    ),
]  # fmt: skip
"""The planted faults that are kept: each is one change that a later hand might make."""
