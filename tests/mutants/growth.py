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
    Mutant(
        "a worker that starts while a slot is closed ends",
        "runtime/feed/subscription.py",
        "                if wait(CLOSED_S):\n                    raise\n",
        "                raise\n",
        UNIT + "test_subscription.py",
    ),
    Mutant(
        "a group that is there cannot subscribe while a slot is closed, on Redis",
        "stores/redis/scripts/subscribe.lua",
        "    if not is_as_before(ARGV[i]) then\n",
        "    if true then\n",
        "tests/conformance/test_growing.py -k 'redis and not cluster and subscribes'",
    ),
    Mutant(
        "a closed slot takes groups, on Redis",
        "stores/redis/scripts/subscribe.lua",
        "  return cursor[1] and max_parked == (cursor[2] or '0') and not expires\n",
        "  return max_parked == (cursor[2] or '0') and not expires\n",
        "tests/conformance/test_growing.py -k 'redis and not cluster and subscribes'",
    ),
    Mutant(
        "a group that is to expire subscribes to a closed slot, on Redis",
        "stores/redis/scripts/subscribe.lua",
        " and max_parked == (cursor[2] or '0') and not expires\n",
        " and max_parked == (cursor[2] or '0')\n",
        "tests/integration/stores/redis/test_growing.py -k 'subscribe or keep'",
    ),
    Mutant(
        "a group begins to keep order in a closed slot, on Redis",
        "stores/redis/scripts/subscribe.lua",
        "  return cursor[1] and max_parked == (cursor[2] or '0') and not expires\n",
        "  return cursor[1] and not expires\n",
        "tests/integration/stores/redis/test_growing.py -k 'subscribe or keep'",
    ),
    Mutant(
        "a group that is not in a closed slot yet holds up its split, on Redis",
        "stores/redis/copying.py",
        "        if epoch is not None or group == UNCLAIMED\n",
        "",
        "tests/conformance/test_growing.py -k 'redis and not cluster and refuses'",
    ),
    Mutant(
        "a group that is not in a closed slot yet is asked for what it has there",
        SPLITTING,
        "        if (found := places.get(self.slot)) is None:\n            return\n",
        "        found = places[self.slot]\n",
        "tests/conformance/test_growing.py -k 'redis and not cluster and refuses'",
    ),
    Mutant(
        "counts of all groups ask each slot for a group that is not there yet, on Redis",
        "stores/redis/counts.py",
        "            if partly and reply[0] == NO_GROUP:\n                continue\n",
        "",
        "tests/conformance/test_growing.py -k 'redis and not cluster and refuses'",
    ),
    Mutant(
        "a group that is dropped as its slots are asked for ends the growth",
        SPLITTING,
        "        except UnknownGroup:  # it was dropped since\n            return False\n",
        "        except UnknownGroup:\n            raise\n",
        UNIT + "test_splitting.py",
    ),
]
