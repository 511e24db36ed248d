"""Faults in the doubling of slots, which a share of simulated runs does while workers go on."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

SPLITTING: Final = "stores/splitting.py"
GROWING: Final = "tests/conformance/test_growing.py -k 'model or sqlite'"
TOPICS: Final = "tests/integration/coordination/test_growing_topics.py -k sqlite"

GROWTH: Final = [
    Mutant(
        "another topic is judged by a roster from before the last claim",
        "coordination/lease.py",
        "        has_changed = has_changed or topic is not self._viewed\n"
        "        if not (beats or has_changed):\n",
        "        if not (beats or has_changed or topic is not self._viewed):\n",
        UNIT + "test_sharing_growth.py",
    ),
    Mutant(
        "a slot is split while it has an owner",
        SPLITTING,
        "        self._wait_until_unowned()\n        store.close_slot",
        "        store.close_slot",
        TOPICS,
    ),
    Mutant(
        "a slot that is split takes messages still",
        SPLITTING,
        "        store.close_slot(topic, self.slot)\n",
        "",
        UNIT + "test_splitting.py",
    ),
    Mutant(
        "what came while a slot was handed over stays behind",
        SPLITTING,
        "            while self._copy_log():\n                pass\n            if self._head()",
        "            if self._head()",
        UNIT + "test_splitting.py",
    ),
    Mutant(
        "what was published while a slot was split is no duplicate",
        SPLITTING,
        "        self._copy_marks()\n        self._copy_sequences()\n",
        "        self._copy_sequences()\n",
        UNIT + "test_splitting.py",
    ),
    Mutant(
        "what stands behind a head goes by its own key into the other half",
        SPLITTING,
        'halves if part == "behind" else None',
        "None",
        UNIT + "test_splitting.py",
    ),
    Mutant(
        "a publisher does not look where a message belongs once its slot is split",
        "producing/entry_sender.py",
        "                entry.slot = topic.slot_of_hash(entry.hash)\n",
        "                pass\n",
        UNIT + "test_producer_growth.py",
    ),
    Mutant(
        "a batch that was stored in part is told as not written",
        "producing/entry_sender.py",
        "            if lost or len(rest) < len(entries):\n",
        "            if lost:\n",
        UNIT + "test_producer_growth.py",
    ),
    Mutant(
        "a mover goes on in a slot whose copies another has discarded",
        "stores/model/growing.py",
        "            if again:\n                use_token(state, slot, token)\n",
        "            if again:\n                pass\n",
        GROWING,
    ),
    Mutant(
        "whoever was thought dead fills a slot that another has opened",
        "stores/model/growing.py",
        "slot is None or not any(OPEN + token in slot.marks for token in tokens)",
        "slot is None or not slot.marks",
        GROWING,
    ),
    Mutant(
        "slots come into use whose copies another has discarded",
        "stores/model/growing.py",
        '        check_token(state, number, tokens.get(number, ""))\n',
        "        pass\n",
        GROWING,
    ),
    Mutant(
        "slots come into use whose copies another has discarded, on Redis",
        "stores/redis/scripts/use.lua",
        "if opened ~= token and opened ~= used then\n",
        "if false then\n",
        "tests/conformance/test_growing.py -k 'redis and begins_anew'",
    ),
    Mutant(
        "a slot whose split is begun anew keeps no order",
        "stores/model/growing.py",
        "        if was_split and cursor is not None:\n",
        "        if cursor is not None:\n",
        GROWING,
    ),
    Mutant(
        "a member that does not know of a split claims the slot",
        "coordination/lease.py",
        "        free = [slot for slot in free if slot in shared]\n",
        "",
        UNIT + "test_sharing_growth.py",
    ),
    Mutant(
        "a member ends that claims the only slot while it begins to be split",
        "coordination/lease.py",
        "        if not epochs:  # the only slot is being split since\n            return mine\n",
        "",
        UNIT + "test_sharing_growth.py",
    ),
    Mutant(
        "a mover that was thought dead falls over a slot that another has split",
        "stores/splitting.py",
        "        if self.slot not in of_slots:\n            raise self._refused()\n",
        "",
        f"{UNIT}test_splitting.py {GROWING}",
    ),
]
