"""Planted faults in what a newer version has written."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant

_RECORDS: Final = "tests/integration/test_newer_records.py"


def _record(words: str) -> str:
    """The test of records whose names have these words."""
    return f"{_RECORDS} -k '{words}'"


NEWER: Final[list[Mutant]] = [
    Mutant(
        "a topic that cannot be read hides all others, on Redis",
        "stores/redis/topics.py",
        "        with found.passing_by():\n",
        "        if True:\n",
        _record("redis and another and kind"),
    ),
    Mutant(
        "a topic that was laid out in another way is read all the same",
        "stores/redis/keys.py",
        "    if layout != str(LAYOUT):\n",
        "    if False:\n",
        "tests/integration/stores/redis/test_start.py -k layout",
    ),
    Mutant(
        "a topic that cannot be read hides all others, in a database",
        "stores/sql/topics.py",
        "            with found.passing_by():\n"
        "                found.append(self._meet(ref_of(row)).topic)\n",
        "            found.append(self._meet(ref_of(row)).topic)\n",
        _record("sqlite and another and kind"),
    ),
    Mutant(
        "a topic is declared over an option of a newer version, on Redis",
        "stores/redis/topics.py",
        "TopicOptions.of(topic).to_json(options)",
        "TopicOptions.of(topic).to_json()",
        _record("redis and option and topic"),
    ),
    Mutant(
        "a topic is declared over an option of a newer version, in a database",
        "stores/sql/topics.py",
        "TopicOptions.of(topic).to_json(row[5])",
        "TopicOptions.of(topic).to_json()",
        _record("sqlite and option and topic"),
    ),
    Mutant(
        "an end of a newer version hides those behind it",
        "stores/redis/histories.py",
        "        known = 1 <= verdict <= len(_VERDICTS)\n",
        "        if not (known := 1 <= verdict <= len(_VERDICTS)):\n            return\n",
        _record("redis and before and history"),
        "test-all",
    ),
    Mutant(
        "an owner of a newer version hides the members of its group",
        "stores/rosters.py",
        "        except ValueError:\n",
        "        except KeyError:\n",
        _record("redis and owner"),
    ),
    Mutant(
        "a rule of a newer version is left out of its schedule",
        "schedules/record.py",
        "class Rules(\n"
        "    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, "
        "forbid_unknown_fields=True\n"
        "):",
        "class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):",
        _record("sqlite and schedule and rule"),
        "test-all",
    ),
    Mutant(
        "code that declares a schedule of a newer version ends its leader",
        "schedules/verbs.py",
        "with suppress(UnreadableSchedule):",
        "with suppress():",
        UNIT + "test_schedules.py",
    ),
    Mutant(
        "a plan of a newer version ends the members of its group",
        "coordination/zookeeper_session.py",
        "        except ValueError as error:\n            why =",
        "        except KeyError as error:\n            why =",
        _record("zookeeper"),
        "test-all",
    ),
]
