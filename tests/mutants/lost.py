"""Faults by which messages reach nobody, or come back changed: deleted topics, and bodies."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant, conforms

DELETED: Final = "tests/integration/publishing/test_deleted_topics.py"
FAN_OUT: Final = "tests/integration/stores/redis/test_fan_out.py"
MODELS: Final = UNIT + "test_model_round_trips.py"

LOST: Final = [
    Mutant(
        "the slots of a topic that was deleted take messages, in Redis",
        "stores/redis/topics.py",
        '"SET", GONE, "EX", _GONE_S)',
        '"GET")',
        conforms("topics", "redis", "knew"),
    ),
    Mutant(
        "the slots of a topic that is declared anew stay closed to producers, in Redis",
        "stores/redis/publish.py",
        "if self._reopen(topic, {entry.slot for entry in refused}):",
        "if False:",
        DELETED,
    ),
    Mutant(
        "a slot that was opened while its topic was deleted stays open, in Redis",
        "stores/redis/topics.py",
        '    if redis.ask(topics_key(namespace), "HGET", keys.topic.name) is None:\n',
        "    if False:\n",
        DELETED,
    ),
    Mutant(
        "a stream's message comes into a topic of another kind, in Redis",
        "stores/redis/scripts/publish_stream.lua",
        "is_closed(slot, declared)",
        "is_closed(slot)",
        conforms("topics", "redis", "knew"),
    ),
    Mutant(
        "a message of another kind comes into a topic, in SQL",
        "stores/sql/publish.py",
        "if declared.kind is not ref.topic.kind:",
        "if False:",
        conforms("topics", "sqlite", "knew"),
    ),
    Mutant(
        "a topic that is declared anew takes what was meant for other slots, in Redis",
        "stores/redis/keys.py",
        'f"{topic.kind} {topic.declared_slots}"',
        'f"{topic.kind}"',
        conforms("topics", "redis", "other_slots"),
    ),
    Mutant(
        "a topic that is declared anew takes what was meant for other slots, in SQL",
        "stores/sql/publish.py",
        "if declared.declared_slots != ref.topic.declared_slots:",
        "if False:",
        conforms("topics", "sqlite", "other_slots"),
    ),
    Mutant(
        "a batch for many groups is one step, however many they are",
        "stores/redis/scripts/publish_subjects.lua",
        "if size > most then",
        "if false then",
        FAN_OUT,
    ),
    Mutant(
        "a batch that was stored in parts is not known as a whole",
        "stores/redis/scripts/publish_subjects.lua",
        "  elseif parted and known[parted] then\n    return part()\n",
        "",
        FAN_OUT,
    ),
    Mutant(
        "a part that is refused leaves the parts before it unsaid",
        "stores/redis/publish.py",
        "            raise AnswerLost(redis.shown, str(error)) from error\n",
        "            raise\n",
        FAN_OUT,
    ),
    Mutant(
        "messages of a batch in parts are not known by their ids",
        "stores/redis/publish.py",
        "    for entry in share:\n        entry.mark = entry.id\n    letters",
        "    letters",
        FAN_OUT,
    ),
    Mutant(
        "a look at all topics begins with the first one each time",
        "admin/rounds.py",
        "                self._last = topic.name\n",
        "",
        UNIT + "test_rounds.py",
    ),
    Mutant(
        "a look at all topics takes as long as it takes",
        "admin/rounds.py",
        "            if self._clock.monotonic_s() >= until_s:\n                break\n",
        "",
        UNIT + "test_rounds.py",
    ),
    Mutant(
        "a search in many topics does not say that it was cut short",
        "admin/search.py",
        "is_cut = len(pages) < len(indexed)",
        "is_cut = False",
        UNIT + "test_rounds.py",
    ),
    Mutant(
        "a topic that nobody has looked at is not looked at for its own page",
        "web/sampler.py",
        " or self._lacks(topic):",
        ":",
        UNIT + "test_console_parts.py",
    ),
    Mutant(
        "a producer goes on with the kind that it knows",
        "producing/catalog.py",
        "if found is None or found.kind is not topic.kind:",
        "if found is None:",
        DELETED,
    ),
    Mutant(
        "a topic that was deleted is not declared a second time",
        "producing/catalog.py",
        "            self._given.pop(_checked(topic).name, None)  # it may be gone\n",
        "",
        DELETED,
    ),
    Mutant(
        "a part of a subclass loses what the subclass adds",
        "models.py",
        "form.parts and any(map(type.__subclasses__, form.parts))",
        "form.parts and any(map(type.__subclasses__, ()))",
        MODELS,
    ),
    Mutant(
        "a serializer may change what is published",
        "models.py",
        ' or "serialization" in node',
        "",
        MODELS,
    ),
    Mutant(
        "a store that an outbox does not belong to is told once and not looked at again",
        "outbox/relay.py",
        "not self._binding.still_holds(connection)",
        "self._binding is None",
        "tests/integration/outbox/test_binding.py -k gets_all_in_order",
    ),
    Mutant(
        "an outbox is bound to a store whatever its mark",
        "outbox/binding.py",
        "if mark != self._confirmed:",
        "if mark == 0:",
        "tests/integration/outbox/test_binding.py -k another_namespace",
    ),
    Mutant(
        "a copy of all topics takes the mark of an outbox along",
        "cli/copy_topic.py",
        "if not name.startswith(STORE_MARK)",
        "if name",
        "tests/integration/cli/test_copying.py -k all_topics",
        "test-all",
    ),
    Mutant(
        "PostgreSQL is given bytes as libpq escapes them",
        "drivers/sql_postgres.py",
        "connection.adapters.register_dumper(bytes, self._bytes_writer)",
        "pass",
        "tests/integration/stores/sql/test_hostile_settings.py -k standard_conf",
        "test-all",
    ),
    Mutant(
        "a proxy may keep what a session sets from MariaDB",
        "drivers/sql_mariadb.py",
        "        if ignored:\n",
        "        if not found:\n",
        "tests/integration/doctor/test_doctor.py -k forgets_what",
        "test-all",
    ),
    Mutant(
        "messages of two topics have one webhook-id",
        "push/contents.py",
        "_digest(namespace, message.topic, message.id)",
        "_digest(namespace, message.id)",
        "tests/integration/push/test_push.py -k told_apart_at_one_url",
        "test-all",
    ),
    Mutant(
        "a handler that publishes ids of its own is told that it does so outside",
        "producing/producer.py",
        "not each.id or each.mark",
        "each.mark",
        "tests/integration/checkers/test_publish_hints.py -k buffered",
        "test-all",
    ),
    Mutant(
        "what comes behind a head that is due before it was published is not counted",
        "stores/redis/scripts/parts/arrive.lua",
        "return due ~= published",
        "return due > published",
        conforms("settle", "redis", "clock_went"),
    ),
]
