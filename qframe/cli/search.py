"""`qframe search`: messages by what they have."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

from qframe.admin.search import LOOK, SEARCHED
from qframe.cli.commands import check_states
from qframe.cli.flags import AsJson, Limit
from qframe.cli.output import counted, say, say_json, say_unknown, table
from qframe.cli.records import as_json as record_as_json
from qframe.cli.records import body_text, second
from qframe.cli.target import Target, targeted
from qframe.errors import BadOption
from qframe.verbs.parameters import argument, option


@targeted
def search(
    target: Target,
    topic: Annotated[str | None, argument("TOPIC", "All if left out.", completes="topic")] = None,
    message_id: Annotated[str | None, option("--id", metavar="ID", help="Its id.")] = None,
    key: Annotated[str | None, option(metavar="KEY", help="Its key.")] = None,
    tag: Annotated[str | None, option(metavar="TAG", help="One of its tags.")] = None,
    header: Annotated[
        list[str] | None,
        option(metavar="NAME[=VALUE]", help="A header; may be repeated."),
    ] = None,
    error: Annotated[str | None, option(metavar="TEXT", help="A text in its last error.")] = None,
    state: Annotated[
        str | None, option(metavar="STATE", help=f"One of {', '.join(SEARCHED)}.")
    ] = None,
    body: Annotated[
        list[str] | None,
        option(metavar="PATH=VALUE", help="A value in its body; may be repeated."),
    ] = None,
    limit: Limit = 20,
    look: Annotated[
        int, option(least=1, metavar="N", help="How many messages to look at, at most.")
    ] = LOOK,
    place: Annotated[
        str | None, option("--from", metavar="PLACE", help="Where a search has ended.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Finds messages by id, key, tag, header, error, state or body.

    An id or a key is looked up; all else is looked for message by message, as is a key in a
    stream, and a search that has looked at enough says where to go on.
    """
    check_states([] if state is None else [state], SEARCHED)
    with target.opened() as app:
        found = app.admin.search(
            topic, id=message_id, key=key, tag=tag, error=error, state=state,
            headers=dict(map(header_of, header or ())),
            body=dict(map(_pair, body or ())), limit=limit, look=look, place=place,
        )  # fmt: skip
        if topic is None:
            say_unknown(app.store.topics().unread)
    if as_json:
        records = [record_as_json(record) for record in found.records]
        say_json(
            {"found": records, "looked": found.looked, "place": found.place,
             "has_more": found.has_more, "unread": found.unread}
        )  # fmt: skip
        return
    if found.records:
        table(
            ("topic", "group", "state", "id", "key", "published", "body"),
            [
                (
                    each.topic, each.group, each.state, each.id, each.key,
                    second(each.published_at_ms), body_text(each),
                )
                for each in found.records
            ],
            cut=True,
        )  # fmt: skip
    else:
        say("nothing found" if found.is_all else "nothing found so far: not all was looked at")
    if found.has_more:
        say(f"these are the first {len(found.records)}; look at more with --limit")
    if found.unread:
        say(
            f"not looked at, since streams find a key only message by message: "
            f"{', '.join(found.unread)}; search one: qframe search TOPIC --key {quote(key or '')}"
        )
    if found.place is not None and found.place.startswith("@"):
        say(f"looked up in topics up to {found.place.strip('@')}; go on: --from {found.place}")
    elif found.place is not None:
        say(f"looked at {counted(found.looked, 'message')}; go on: --from {found.place}")
    elif found.looked and not found.records:
        say(f"looked at all {counted(found.looked, 'message')}")


def header_of(text: str) -> tuple[str, str | None]:
    """A header's name, and its value where one is given."""
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _pair(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise BadOption("body", text, "it has no value", "use --body user.id=5")
    return path, value
