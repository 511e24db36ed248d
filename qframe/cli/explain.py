"""`qframe explain`: why a message is where it is."""

from __future__ import annotations

from collections import Counter
from shlex import quote
from typing import Annotated, Any

from click.exceptions import Exit

from qframe.admin.explain.cause import Cause, Explanation
from qframe.admin.explain.explainer import BEHIND, LOOK
from qframe.cli.attempts import entry_as_json, say_attempts
from qframe.cli.commands import BadCommand, check_beside
from qframe.cli.flags import AsJson
from qframe.cli.look import say_facts
from qframe.cli.output import say, say_aside, say_json, say_unknown
from qframe.cli.records import as_json as record_as_json
from qframe.cli.target import Target, coordinated
from qframe.clock import moment
from qframe.stores.types import TopicList
from qframe.verbs.parameters import argument, option


@coordinated
def explain(
    target: Target,
    words: Annotated[
        list[str] | None,
        argument("[TOPIC] ID", "The message's id, behind its topic or alone."),
    ] = None,
    topic: Annotated[str | None, option(metavar="TOPIC", help="All if left out.")] = None,
    key: Annotated[str | None, option(metavar="KEY", help="The messages of a key.")] = None,
    offset: Annotated[
        int | None, option(least=0, metavar="N", help="The message at an offset of a stream.")
    ] = None,
    slot: Annotated[
        int | None, option(least=0, metavar="N", help="Only this slot, with --offset or --key.")
    ] = None,
    look: Annotated[
        int,
        option(
            least=0, metavar="N", help="How many messages to look at where no index leads to it."
        ),
    ] = LOOK,
    as_json: AsJson = False,
) -> None:
    """Shows where a message is for each group, and why.

    By its id, its key or its offset; in one topic, or in all.
    """
    given = list(words or ())
    if topic is None and (len(given) == 2 or (given and offset is not None)):
        topic = given.pop(0)
    if len(given) > 1:
        raise BadCommand("message", " ".join(given), "it is no id", "give ID, or TOPIC ID")
    message_id = given[0] if given else None
    if message_id is None and key is None and offset is None:
        raise BadCommand(
            "command", "explain", "nothing names a message", "give its ID, --key or --offset"
        )
    if offset is not None:
        names = {"ID": message_id, "--key": key}
        check_beside("explain", "--offset", names, "give no --offset")
    with target.opened() as app:
        topics = app.store.topics() if topic is None else TopicList()
        say_unknown(topics.unread)
        is_topic = message_id in [each.name for each in topics]
        if is_topic and key is not None:
            topic, message_id = message_id, None
        found = app.admin.explain(topic, message_id, key=key, offset=offset, slot=slot, look=look)
        is_found = any(each.is_found for each in found)
        if is_topic and message_id is not None and not is_found:
            say_aside(f"{message_id} was taken for an id; it is a topic: --topic {message_id}")
    if as_json:
        say_json([as_json_of(each) for each in found])
    else:
        for number, each in enumerate(found):
            if number:
                say("")
            say_explanation(each)
        if key is not None and message_id is None and (of := _cut_off(found)) is not None:
            say(f"of {of} these are the first {BEHIND + 1}; if there are more: qframe search "
                f"--key {quote(key)} --limit N")  # fmt: skip
    if not is_found:
        raise Exit(1)


def _cut_off(found: list[Explanation]) -> str | None:
    """A topic's group whose line of a key may be longer than what was looked up of it."""
    counts = Counter((each.topic, each.group) for each in found if each.state != "dead")
    lines = (f"{topic}/{group}" for (topic, group), count in counts.items() if count > BEHIND)
    return next(lines, None)


def as_json_of(each: Explanation) -> dict[str, Any]:
    """An explanation as programs read it: the message's record, and its causes."""
    shown: dict[str, Any] = {
        "topic": each.topic, "group": each.group, "slot": each.slot, "state": each.state,
        "id": each.id, "key": each.key, "offset": each.offset,
    }  # fmt: skip
    if each.record is not None:
        shown |= record_as_json(each.record)
    return shown | {
        "duplicate_until": moment(each.duplicate_until_ms), "looked": each.looked,
        "place": each.place, "causes": [_cause_as_json(cause) for cause in each.causes],
        "history": each.history and [entry_as_json(one) for one in each.history],
    }  # fmt: skip


def _cause_as_json(cause: Cause) -> dict[str, Any]:
    facts = {
        name.removesuffix("_ms"): moment(value) if name.endswith("_ms") else value
        for name, value in cause.facts.items()
    }
    return {"cause": cause.name, "of": cause.of, "text": cause.text, **facts}


def say_explanation(each: Explanation) -> None:
    """An explanation for people: the first cause, the others, and all facts of the message."""
    group = "" if each.group is None else f", group {each.group}"
    where = f" in {each.topic}" if each.topic else ""
    first, *others = each.causes
    say(f"{each.state}{where}{group}: {first.text}")
    for cause in others:
        say(f"  also: {cause.text}")
    if each.duplicate_until_ms is not None:
        until = moment(each.duplicate_until_ms)
        say(f"  publishing this id again would be a duplicate of it until {until}")
    if each.place is not None:
        of_topic = f" {each.topic}" if each.topic else ""
        named = {"--id": each.id, "--key": each.key}
        given = "".join(f" {flag} {quote(text)}" for flag, text in named.items() if text)
        say(f"  go on: qframe search{of_topic}{given} --from {each.place}")
    if each.record is not None:
        say_facts(each.record)
    say_attempts(each)
