"""Faults by which messages reach nobody, or come back changed: deleted topics, and bodies."""

from __future__ import annotations

from typing import Final

from mutants.mutant import UNIT, Mutant, conforms

DELETED: Final = "tests/integration/publishing/test_deleted_topics.py"
MODELS: Final = UNIT + "test_model_round_trips.py"

LOST: Final = [
    Mutant(
        "the slots of a topic that was deleted take messages, in Redis",
        "stores/redis/topics.py",
        '    redis.ask_many([(keys.key(slot, "closed"), "SET", _GONE) for slot in numbers])\n',
        "",
        conforms("topics", "redis", "knew"),
    ),
    Mutant(
        "the slots of a topic that is declared anew stay closed, in Redis",
        "stores/redis/topics.py",
        "    if not kind:\n        _reopen(redis, namespace, topic)\n",
        "",
        conforms("topics", "redis", "knew"),
    ),
    Mutant(
        "a stream's message comes into a topic of another kind, in Redis",
        "stores/redis/scripts/publish_stream.lua",
        "is_closed(slot, 'stream')",
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
        "a producer goes on with the kind that it knows",
        "producing/catalog.py",
        "if found is None or found.kind is not topic.kind:",
        "if found is None:",
        DELETED,
    ),
    Mutant(
        "a topic that was deleted is not declared a second time",
        "producing/catalog.py",
        "            self._given.pop(topic.name, None)  # it may have been deleted since\n",
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
]
