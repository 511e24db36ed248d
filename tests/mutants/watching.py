"""Faults in what shows how a process does: jobs of the console, numbers, and probes."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

ACTS: Final = UNIT + "test_console_parts.py"
METERS: Final = UNIT + "test_meters.py"
FOLDER: Final = UNIT + "test_metrics_folder.py"
REPORTING: Final = UNIT + "test_reporting.py"
HEALTH: Final = UNIT + "test_health.py"

WATCHING: Final = [
    # Jobs of the console.
    Mutant(
        "who may only retry stops a job that drops",
        "web/acts.py",
        "    visit.require(job.task.right)\n    job.stop()\n",
        "    job.stop()\n",
        ACTS,
    ),
    Mutant(
        "a job that runs is forgotten where there are too many",
        "web/jobs.py",
        """[each for each in self._jobs.values() if each.state != "running"]""",
        "list(self._jobs.values())",
        ACTS,
    ),
    Mutant(
        "pages are looked at anew before a job has ended, and not after",
        "web/jobs.py",
        "        try:\n            job.run(act)\n        finally:\n"
        "            self._running.give_back(job.by)\n            self._on_end()\n",
        "        self._on_end()\n        job.run(act)\n        self._running.give_back(job.by)\n",
        ACTS,
    ),
    Mutant(
        "a job that is stopped does not count its last step",
        "web/jobs.py",
        "        self.done = done\n        if self._stopping:\n            raise _Stopped\n",
        "        if self._stopping:\n            raise _Stopped\n        self.done = done\n",
        ACTS,
    ),
    Mutant(
        "timers are counted by a tag, and changed without it",
        "web/timer_acts.py",
        '("topic", "since", "until", "key", "state", "tag", "at", "shift")',
        '("topic", "since", "until", "key", "state", "at", "shift")',
        ACTS,
    ),
    Mutant(
        "timers in a database are counted up to now by the clock of Redis",
        "web/timer_acts.py",
        "store.now_ms(store.topic(topic)) if seen_ms",
        "store.now_ms() if seen_ms",
        ACTS,
    ),
    # Numbers.
    Mutant(
        "an operation that has never reached the store shows no errors",
        "telemetry/timed_store.py",
        "            try:\n"
        "                return operation(*args, **options)\n"
        "            except StoreUnavailable:\n"
        "                with self._guard:\n"
        "                    self.errors[name] += 1\n"
        "                raise\n"
        "            finally:\n"
        "                histogram.add(monotonic_s() - started_s)\n",
        "            try:\n"
        "                result = operation(*args, **options)\n"
        "            except StoreUnavailable:\n"
        "                with self._guard:\n"
        "                    self.errors[name] += 1\n"
        "                raise\n"
        "            histogram.add(monotonic_s() - started_s)\n"
        "            return result\n",
        METERS,
    ),
    Mutant(
        "each look at a supervisor's numbers adds those that live to those that are gone",
        "telemetry/metrics_folder.py",
        "other._samples = {name: dict(samples) for name, samples in self._samples.items()}",
        "other._samples = dict(self._samples)",
        FOLDER,
    ),
    Mutant(
        "how late a timer in a database is, is told by the clock of Redis",
        "telemetry/store_numbers.py",
        "lambda one: _age_s(one.totals.oldest_ms, one.now_ms),",
        "lambda one: _age_s(one.totals.oldest_ms, now_ms),",
        UNIT + "test_store_pair.py",
    ),
    Mutant(
        "the wait of a message that begins alone is not counted, where many were pulled",
        "telemetry/consumer_meter.py",
        "since[: -(-count * len(since) // run.attempts)]",
        "since[: count * len(since) // run.attempts]",
        METERS,
    ),
    Mutant(
        "the next worker of an app forgets for how long the last one was limited",
        "telemetry/consumer_meter.py",
        "        self._limited_s = self.limited_s\n",
        "",
        METERS,
    ),
    # Health.
    Mutant(
        "a supervisor that restarts a worker has not started any more",
        "runtime/process/probes.py",
        "self._has_started = self._has_started or health.state in",
        "self._has_started = health.state in",
        HEALTH,
    ),
    Mutant(
        "a worker that was restarted is judged by what the one before has said",
        "runtime/process/child.py",
        "        self._ready_at_s = self._reported = None\n",
        "        self._ready_at_s = None\n",
        UNIT + "test_supervising.py",
    ),
    Mutant(
        "a report that comes in two parts is lost",
        "runtime/process/child.py",
        '(self._unread + said).split(b"\\n")',
        'said.split(b"\\n")',
        HEALTH,
    ),
    Mutant(
        "a worker without consumers is ready though its store is away",
        "runtime/process/live_settings.py",
        "        if not self._asked:\n            self._store.now_ms()\n",
        "",
        REPORTING,
    ),
    Mutant(
        "autoscalers that wait for a store take the places of probes",
        "cli/scale.py",
        "HttpRoute(self._reply, waits=True, guarded=True)",
        "HttpRoute(self._reply, guarded=True)",
        UNIT + "test_scale.py",
    ),
]
