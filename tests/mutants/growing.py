"""Faults at the edges of growth: leases, what a killed grower left, the second topic, late news."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

SPLITTING: Final = "stores/splitting.py"
LEASE: Final = "stores/growth_lease.py"
GROWTHS: Final = UNIT + "test_growths.py"

GROWING: Final = [
    Mutant(
        "a growth looks at its lease after hours",
        LEASE,
        "self._lease_ms / LOOKS / 1000",
        "self._lease_ms / LOOKS",
        UNIT + "test_doubling.py",
    ),
    Mutant(
        "a growth that waits for an owner lets its lease run out",
        SPLITTING,
        "            self._lease.keep()\n            if not topic.has_subjects:\n",
        "            if not topic.has_subjects:\n",
        GROWTHS,
    ),
    Mutant(
        "a group that comes while a slot is copied is not in the two",
        SPLITTING,
        "        for half in self._halves:\n"
        "            store.open_slot(topic, half.slot, self.slot, half.use_token(), again=True)\n",
        "",
        "tests/conformance/test_growing.py -k '(redis or sqlite) and not cluster and meanwhile'",
    ),
    Mutant(
        "dead messages are counted as acknowledged once their slot is split",
        SPLITTING,
        "                    counts[half] += len(some)\n",
        '                    counts[half] += len(some) if part != "dead" else 0\n',
        UNIT + "test_splitting.py",
    ),
    Mutant(
        "each page alone is judged, and not all that waits in a slot",
        "stores/depth.py",
        "        count += len(page[2])\n",
        "        count = len(page[2])\n",
        "tests/conformance/test_growing.py -k 'sqlite and short_pause'",
    ),
    Mutant(
        "a worker finishes the growth of its first topics alone",
        "runtime/process/sweeper.py",
        "                    continue\n",
        "                    return\n",
        GROWTHS,
    ),
    Mutant(
        "who asks for fewer slots takes back how far others want a topic to grow",
        "stores/doubling.py",
        "take(max(slots, topic.growth.target))",
        "take(slots)",
        UNIT + "test_doubling.py",
    ),
    Mutant(
        "a topic is copied that is about to close its next slot",
        "admin/copying.py",
        "    if topic.growth.target:\n",
        "    if topic.growth.closing:\n",
        GROWTHS,
    ),
    Mutant(
        "a slot that is split stays with a dead member until its session passes",
        "coordination/zookeeper_session.py",
        "{*self._topic.now.all_slots, *plan.slot_numbers}",
        "{*self._topic.now.shared_slots, *plan.slot_numbers}",
        UNIT + "test_zookeeper_session.py",
    ),
    Mutant(
        "who publishes into a slot that stays closed waits for ever",
        "producing/entry_sender.py",
        "                        self._pause(LOOK_AGAIN_S)\n",
        "                        self._pause(LOOK_AGAIN_S)\n"
        "                        closed_until_s = now_s + CLOSED_S\n",
        UNIT + "test_producer_growth.py",
    ),
    Mutant(
        "a worker looks often only once a slot is closing",
        "runtime/process/live_settings.py",
        "if topic.growth.target]",
        "if topic.growth.closing]",
        UNIT + "test_live_settings.py",
    ),
    Mutant(
        "what a killed growth has left in a split slot stays for ever",
        "stores/doubling.py",
        "        for slot in range(topic.growth.first + topic.growth.split):\n"
        "            self._discard(topic, slot)  # what may be left of slots that were split\n",
        "",
        UNIT + "test_doubling.py",
    ),
    Mutant(
        "a group that is to expire never does in the slots that one is split into, on Redis",
        "stores/redis/growing.py",
        'expiries.get(name, b"")',
        'b""',
        "tests/integration/coordination/test_growing_topics.py -k to_expire",
    ),
    Mutant(
        "a burst ends while a slot is split whose messages it has not seen",
        "runtime/feed/slots.py",
        "                self.share(found)\n"
        "            if self.topic is before:\n"
        "                return False\n",
        "                self.share(found)\n            return False\n",
        UNIT + "test_slots.py",
    ),
]
