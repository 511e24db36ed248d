"""Planted faults in the harness and the options of handlers."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

HARNESSES: Final[list[Mutant]] = [
    Mutant(
        "a harness does not look again at what waits for the tokens that it has drawn",
        "testing/stepper.py",
        "        self._executor.resume()\n        return True\n",
        "        return True\n",
        UNIT + "test_harness_options.py",
    ),
    Mutant(
        "a harness counts what it tries in vain from its beginning",
        "testing/progress.py",
        "self._seen, self._in_vain = self._journal.noted, 0",
        "self._seen = self._journal.noted",
        UNIT + "test_harness_options.py",
    ),
    Mutant(
        "a harness does not tell why the end of a delivery has failed",
        "testing/journal.py",
        '        if event not in ("delivery.retried", "delivery.dead", "delivery.failed"):',
        '        if event not in ("delivery.failed",):',
        UNIT + "test_harness_options.py",
    ),
    Mutant(
        "reset empties a table that only ends like one of ours",
        "testing/resetting.py",
        'if kind == "effects" and _columns(connection, name) == EFFECTS:',
        'if kind == "effects":',
        UNIT + "test_harness_options.py",
    ),
    Mutant(
        "a number by position is taken for seconds",
        "durations.py",
        "if isinstance(value, int | float) and value != 0:",
        "if isinstance(value, int | float) and value < 0:",
        UNIT + "test_durations.py",
    ),
    Mutant(
        "an option that ends in timeout is taken for a duration",
        "drivers/redis_servers.py",
        "    if own not in DURATIONS:",
        '    if not own.endswith("timeout"):',
        UNIT + "test_redis_errors.py",
    ),
    Mutant(
        "an option is refused without the words of its own rule",
        "options/rules.py",
        "            raise BadOption(name, value, error.why, error.remedy) from error",
        '            raise BadOption(name, value, f"it must be {option.rule.text}", "") from error',
        UNIT + "test_settings.py",
    ),
    Mutant(
        "the order of a body's keys is a part of its subject",
        "codec.py",
        "            return _encode_sorted(body)\n",
        "            return encoded\n",
        UNIT + "test_equal_bodies.py",
    ),
    Mutant(
        "a publish whose retry was refused does not say why",
        "producing/entry_sender.py",
        "[entry.id for entry in entries], error) from error",
        "[entry.id for entry in entries]) from error",
        "tests/integration/workers/test_odd_moments.py -k password",
        "test-all",
    ),
    Mutant(
        "a reply that is bytes is compared with a number",
        "stores/redis/groups.py",
        "    return isinstance(reply, int) and reply == NO_GROUP",
        "    return reply == NO_GROUP",
        "tests/integration/workers/test_odd_moments.py -k 'bytes and redis'",
    ),
    Mutant(
        "days of the month and of the week are said to be either, though both must fit",
        "schedules/preview.py",
        'is_both = day.startswith("*") or weekday.startswith("*")',
        "is_both = False",
        UNIT + "test_schedules.py",
    ),
]
