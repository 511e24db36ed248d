"""Planted faults in what answers say, and leave out."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant, conforms

TIMERS: Final = UNIT + "test_timers.py"

ANSWERS: Final[list[Mutant]] = [
    Mutant(
        "a group that no look-up has answered for is left out",
        "admin/explain/explainer.py",
        " if knows and self._sought.id is not None else []\n",
        " if self._sought.id == told else []\n",
        conforms("explain", "sqlite", "answered_for"),
    ),
    Mutant(
        "what was not looked at is absent",
        "admin/explain/explainer.py",
        "        if page.place is not None and not self._is_whole(topic, told):\n",
        "        if page.place == told:\n",
        conforms("explain", "sqlite", "not_all_looked_at"),
    ),
    Mutant(
        "a message is looked for in topics by their names, wherever it is remembered",
        "admin/search.py",
        "[each for each in remembered if not _is_whole(each[0], query)]",
        "remembered[:0]",
        conforms("explain", "sqlite", "looked_for_first"),
    ),
    Mutant(
        "the whole line of a key is taken to be looked at, however long it is",
        "admin/search.py",
        "    has_more = len(fitting) > limit or (query.asks_more and _is_cut(found, most))\n",
        "    has_more = len(fitting) > limit\n",
        conforms("search", "sqlite", "filter"),
    ),
    Mutant(
        "a search for the dead looks at all messages",
        "stores/searching.py",
        '        if part == _ALONE.get(sought.state or "", part)\n',
        "",
        conforms("search", "sqlite", "only_where"),
    ),
    Mutant(
        "a topic before --key is taken for an id",
        "cli/explain.py",
        "        if is_topic and key is not None:\n",
        "        if is_topic and key is None:\n",
        "tests/integration/cli/test_reading.py -k before_a_key",
    ),
    Mutant(
        "all timers are those of the first page",
        "admin/timer_search.py",
        "        place, is_end = hits.place, hits.place is None\n",
        "        place, is_end = hits.place, True\n",
        TIMERS,
    ),
    Mutant(
        "a timer that was not looked at is not there",
        "admin/timer_status.py",
        "    if not hits.records and hits.place is not None:\n",
        "    if hits.records and hits.place is not None:\n",
        TIMERS,
    ),
    Mutant(
        "a message that was taken from a handler is seen when its lease is renewed",
        "runtime/process/live_settings.py",
        "            consumer.renewal.wake()\n",
        "            pass\n",
        "tests/integration/flow/test_holds.py -k 'taken_away and sqlite'",
    ),
]
