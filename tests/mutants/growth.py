"""Faults in the doubling of slots, and at its edges: leases, killed growers, the second topic."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

SPLITTING: Final = "stores/splitting.py"
GROWING: Final = "tests/conformance/test_growing.py -k 'model or sqlite'"
TOPICS: Final = "tests/integration/coordination/test_growing_topics.py -k sqlite"
LEASE: Final = "stores/growth_lease.py"
GROWTHS: Final = UNIT + "test_growths.py"

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
        "            if partly and lacks_group(reply[0]):\n                continue\n",
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
        "                    continue\n                if topic.growth",
        "                    return\n                if topic.growth",
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
